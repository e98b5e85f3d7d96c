"""Organisations in what people read: by name, with the DID where one is first mentioned."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class OrganisationMentions:
    """What one answer calls each organisation, in the order in which they are mentioned."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Organisations' names by DID; one that several have, or that holds a DID, is always followed by its own."""
        # An organisation names itself: nothing of that moves a terminal's cursor.
        self._names = {did: _CONTROL.sub("?", name) for did, name in names.items()}
        counts = Counter(self._names.values())
        self._alike = {name for name, count in counts.items() if count > 1 or "did:" in name}
        self._mentioned: set[str] = set()

    def text(self, did: str) -> str:
        """Its name, the first time with its DID; the DID alone where no name is known."""
        name = self._names.get(did)
        if name is None:
            return did
        if did in self._mentioned and name not in self._alike:
            return name
        self._mentioned.add(did)
        return f"{name} ({did})"
