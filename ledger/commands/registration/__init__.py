"""Commands that register organisations, documents and partitions, and retire partitions."""
