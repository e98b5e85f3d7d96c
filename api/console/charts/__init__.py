"""Charts as SVG, drawn on the server from the numbers of a table."""
