"""Profiles: who is calling, which service, and the access token that a login leaves."""
