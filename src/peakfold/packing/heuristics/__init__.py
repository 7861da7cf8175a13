"""Packing by rules: fast, without a proof."""
