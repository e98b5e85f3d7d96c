"""Attestation: evidence tokens of clean rooms, and the checks of one under a policy."""
