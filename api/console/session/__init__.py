"""Who looks: logging in by OpenID Connect, and the sealed cookie of a session."""
