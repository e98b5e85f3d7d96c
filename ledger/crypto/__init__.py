"""Signatures: public keys as JWKs, signing keys of organisations and detached JWS."""
