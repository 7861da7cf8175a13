"""Calls of ATen operators to graphs, whoever read or captured them."""
