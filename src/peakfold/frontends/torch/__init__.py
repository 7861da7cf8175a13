"""PyTorch modules to graphs."""
