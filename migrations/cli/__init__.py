"""The operator's commands: ``epsilon db``."""
