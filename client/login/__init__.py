"""Logging in by OpenID Connect: discovery, the authorization code flow and ID tokens."""
