"""Verification of a whole book: replay every entry, rebuild the tree and compare every row."""
