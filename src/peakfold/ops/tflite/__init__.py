"""Rows of TensorFlow Lite's operators, and their names."""
