"""HTTP itself: request bodies, problem details (RFC 9457), entity tags, pages and snapshots."""
