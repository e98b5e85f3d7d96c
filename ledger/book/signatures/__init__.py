"""The signatures of many commands, verified by two processes at once."""
