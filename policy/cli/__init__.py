"""Policy's commands: ``epsilon document``, ``plan``, ``policy impact`` and ``depa``."""
