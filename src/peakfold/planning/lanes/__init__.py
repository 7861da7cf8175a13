"""Plans for several lanes."""
