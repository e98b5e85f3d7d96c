"""Bytes and text at the trust boundary: canonical JSON (RFC 8785) and exact numbers."""
