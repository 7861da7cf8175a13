"""Packing of thousands of buffers."""
