"""The book and its pure core: loss, rules, charges, lineage, entries and proofs."""
