"""The ledger's commands on a book: ``epsilon verify``, ``log``, ``publish`` and ``witness``."""
