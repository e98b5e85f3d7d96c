"""Policies: strict readers of documents, Levels, contracts, and every decision with its reasons. Pure."""
