"""The compiled hot loops (numba). No policy lives here, and nothing imports it eagerly."""
