"""A plan in a real runtime: run as the plan says, and measured there."""
