"""Packing with a proof: the exact search."""
