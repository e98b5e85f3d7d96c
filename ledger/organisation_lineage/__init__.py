"""What each organisation knows: exposure of a holder, edits of the lineage graph and coalitions."""
