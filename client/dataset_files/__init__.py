"""Data files of a provider: tables as they lie on disk, their schema, sealed records, and commitments to them."""
