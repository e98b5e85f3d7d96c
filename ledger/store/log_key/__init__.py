"""The key of a log over time, as its entries prove it."""
