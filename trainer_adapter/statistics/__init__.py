"""Charged statistics of a partition: columns, exact totals, noise, and what is computed from the answers."""
