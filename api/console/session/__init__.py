"""Sessions: login by OpenID Connect, and the sealed cookie."""
