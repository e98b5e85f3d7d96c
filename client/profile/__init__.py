"""Profiles: the caller, the service, and the access token that a login leaves."""
