"""Tokens of records: which are of one person, in one file or in several that are joined."""
