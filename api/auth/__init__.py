"""Authentication and authorisation: access tokens, signed requests, roles and visibility."""
