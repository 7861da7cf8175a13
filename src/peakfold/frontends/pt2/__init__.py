"""Exported PyTorch programs to graphs, without PyTorch."""
