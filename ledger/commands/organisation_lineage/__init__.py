"""Commands about the lineage of organisations: what became of them, and what one has learnt from another."""
