"""Tuning: trials of points of a declared space, in a secret number; only the best model leaves."""
