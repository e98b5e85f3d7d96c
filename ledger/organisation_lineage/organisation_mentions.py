"""Organisations in text for people: by name, with the DID at the first mention."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of the text after them (Unicode Annex 9, section 2)."""
_UNMISTAKABLE: Final = re.compile(r"[!-~]+(?: [!-~]+)*")


def mistakable(names: Iterable[str]) -> frozenset[str]:
    """Those names that people may take for another's, so that the DID stands beside each of them.

    An organisation chooses its name: two may be the same but for upper case; one may hold a DID; and letters outside
    ASCII, blanks at an edge or two together may look like what they are not (Unicode Technical Standard 39, section 4).
    """
    every = [*names]
    counts = Counter(name.casefold() for name in every)
    return frozenset(
        name
        for name in every
        if counts[name.casefold()] > 1 or "did:" in name.casefold() or not _UNMISTAKABLE.fullmatch(name)
    )


def named_exactly(name: str, did: str) -> str:
    """A name and the DID that it stands for; nothing in the name moves a cursor or turns the DID around."""
    return f"{_CONTROL.sub('?', name)} ({did})"


class OrganisationMentions:
    """The names of organisations in one answer, in the order of their mentions."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Organisations' names by DID; a :func:`mistakable` one is always followed by the DID."""
        self._names = names
        self._mistakable = mistakable(names.values())
        self._mentioned: set[str] = set()

    def text(self, did: str) -> str:
        """Its name, the first time with its DID; the DID alone if no name is known."""
        name = self._names.get(did)
        if name is None:
            return did
        if did in self._mentioned and name not in self._mistakable:
            return name
        self._mentioned.add(did)
        return named_exactly(name, did)
