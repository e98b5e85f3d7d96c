"""Checks in order with stable codes, and strict readers of times, ε and δ."""
