"""The import of DEPA: contracts and pipelines of DEPA Training become our documents, or are refused by name."""
