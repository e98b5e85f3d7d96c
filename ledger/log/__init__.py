"""The transparency log: Merkle tree (RFC 9162), checkpoints, tiles and the witness protocol."""
