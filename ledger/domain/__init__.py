"""The values of the domain: commands, entries, facts, outcomes, the gate and the lineage graph."""
