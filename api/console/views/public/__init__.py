"""The page that everyone may see, without a login."""
