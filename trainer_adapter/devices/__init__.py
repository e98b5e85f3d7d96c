"""One run on several devices of one clean room: ranks with disjoint shards, one noise, and one ledger session."""
