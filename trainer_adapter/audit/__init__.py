"""Audited runs: canaries beside the records, and what a room that knows its coins proves of ε."""
