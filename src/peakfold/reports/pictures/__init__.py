"""SVG and PNG."""
