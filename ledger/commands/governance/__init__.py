"""Commands that govern what was entered: revocations, decrees, notices and openings of models."""
