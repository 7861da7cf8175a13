"""What a graph costs: operations, memory access, parameters."""
