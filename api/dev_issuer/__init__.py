"""The development issuer: an OAuth 2.0 and OpenID Connect server for one machine."""
