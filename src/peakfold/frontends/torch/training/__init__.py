"""The memory of a PyTorch training step, followed storage by storage."""
