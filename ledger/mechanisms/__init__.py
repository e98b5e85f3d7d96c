"""Mechanisms: what ran, the plan of a run, its loss, and the table of proven prices."""
