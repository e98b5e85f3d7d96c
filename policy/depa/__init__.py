"""DEPA's own papers: contracts and pipelines of DEPA Training become our documents or are refused by name."""
