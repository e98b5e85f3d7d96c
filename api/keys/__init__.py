"""Data keys: key stores, nonces and key release to an attested clean room."""
