"""Ensembles: teachers on disjoint chunks of the records, whose noisy answers are charged and nothing else leaves."""
