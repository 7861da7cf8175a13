"""Runtimes as oracles: what ran decides whether a shape of ours is right."""
