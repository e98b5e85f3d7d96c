"""Commands about the lineage of organisations: what has become of them, and what one has learnt from another."""
