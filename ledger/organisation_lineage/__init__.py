"""Who knows what: exposure of a holder, edits of the lineage graph and coalitions."""
