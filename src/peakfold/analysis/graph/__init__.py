"""Facts of a graph: index, schedule, aliases, what may run together, bounds for any order."""
