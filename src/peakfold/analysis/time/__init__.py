"""How long a graph takes on a device: bounds, and estimates where measurements exist."""
