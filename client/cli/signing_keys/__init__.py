"""Commands about the recovery of signing keys, of ``epsilon key``."""
