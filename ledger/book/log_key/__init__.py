"""The key of a log is replaced."""
