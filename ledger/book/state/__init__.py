"""What the writer keeps to decide on, and how it finds in the log what it does not keep."""
