"""Plan against graph, by code that shares nothing with the planner."""
