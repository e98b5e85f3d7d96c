"""A secret in memory: nothing that prints, logs, formats or pickles it tells its bytes."""

from __future__ import annotations

from typing import NoReturn, final


@final
class Secret:
    """Bytes that are told only on purpose, by :meth:`reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        """Hold ``value``."""
        self._value = value

    def reveal(self) -> bytes:
        """The bytes, for the one call that needs them."""
        return self._value

    def __repr__(self) -> str:
        """Tell that there is a secret, and nothing of it; ``str`` and format fall back to this."""
        return "Secret(redacted)"

    def __reduce__(self) -> NoReturn:
        """Refuse to leave the process. Raises: TypeError."""
        message = "a secret is not pickled"
        raise TypeError(message)
