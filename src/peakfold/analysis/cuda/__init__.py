"""PyTorch's CUDA allocator, replayed."""
