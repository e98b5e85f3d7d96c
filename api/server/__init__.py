"""The HTTP server: its port, its clock and the limits of one connection."""
