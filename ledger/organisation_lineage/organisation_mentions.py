"""Organisations in text for people: by name, with the DID at the first mention."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class OrganisationMentions:
    """The names of organisations in one answer, in the order of their mentions."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Organisations' names by DID; an ambiguous name, or one that holds a DID, is always followed by the DID."""
        # An organisation chooses its name: control characters must not move a terminal's cursor.
        self._names = {did: _CONTROL.sub("?", name) for did, name in names.items()}
        counts = Counter(self._names.values())
        self._alike = {name for name, count in counts.items() if count > 1 or "did:" in name}
        self._mentioned: set[str] = set()

    def text(self, did: str) -> str:
        """Its name, the first time with its DID; the DID alone if no name is known."""
        name = self._names.get(did)
        if name is None:
            return did
        if did in self._mentioned and name not in self._alike:
            return name
        self._mentioned.add(did)
        return f"{name} ({did})"
