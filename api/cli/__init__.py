"""The service's commands: ``epsilon serve``, ``epsilon dev-issuer`` and ``epsilon demo``."""
