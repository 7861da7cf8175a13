"""Rows of ATen's operators."""
