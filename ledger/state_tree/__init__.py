"""The state as a sparse Merkle tree: one leaf a record, whose root the book states in its log."""
