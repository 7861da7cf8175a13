"""Which tensors share storage, and the live ranges that come of it."""
