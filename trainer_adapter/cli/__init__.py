"""The trainer's commands: ``epsilon train``, ``release``, ``evaluate`` and ``device``."""
