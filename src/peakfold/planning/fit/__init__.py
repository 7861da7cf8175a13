"""What makes a model fit a budget."""
