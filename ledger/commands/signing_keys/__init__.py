"""Commands on the signing keys of organisations: rotation, revocation, suspension, recovery by a quorum."""
