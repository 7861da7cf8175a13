"""Questions about a packing: capacity, why not, banks, replanning, made instances."""
