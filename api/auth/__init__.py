"""Who is calling and what they may do: access tokens, signed requests, roles and visibility."""
