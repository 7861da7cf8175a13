"""PyTorch: a training step predicted, then really run, and both side by side."""
