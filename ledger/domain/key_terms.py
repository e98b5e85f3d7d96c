"""When a signing key of an organisation counts: from when until when, and whether it is suspended or revoked.

A key that no rotation, recovery, suspension or revocation has named has no terms: it counts from its entry on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class KeyTerms(NamedTuple):
    """The terms of one key, known by its thumbprint.

    Attributes:
        starts: the time (ms) from which its signatures count.
        until: the time (ms) from which they no longer count; None if no end is set.
        suspended_by: the organisation that has suspended it; None if it is not suspended.
        revoked: the entry that revoked it for good; None if it is not revoked.
        index: the entry that first gave it terms.
    """

    key_id: str
    owner: str
    starts: int
    until: int | None
    suspended_by: str | None
    revoked: int | None
    index: int  # type: ignore[assignment]  # tuples have a method of that name, which is not used

    def refusal(self, now: int) -> str:
        """Why a signature that is received at a time (ms) does not count; empty if it does."""
        if self.revoked is not None:
            return f"was revoked by entry {self.revoked}"
        if self.suspended_by is not None:
            return f"is suspended by {self.suspended_by}"
        if now < self.starts:
            return "is not in force yet"
        return "was retired" if self.until is not None and now >= self.until else ""


class RecoveryQuorum(NamedTuple):
    """The organisations that may give another one a new key together, as it named them beforehand.

    Attributes:
        organisation: the one whose key they may replace.
        threshold: how many of them must sign.
    """

    organisation: str
    members: tuple[str, ...]
    threshold: int
    index: int  # type: ignore[assignment]  # see KeyTerms


class ExtendedQuorum(NamedTuple):
    """An organisation that has extended its quorum to each SRO that it registers.

    Attributes:
        index: the entry that first extended it.
    """

    organisation: str
    index: int  # type: ignore[assignment]  # see KeyTerms


class _KnowsKeys(Protocol):
    @property
    def key_terms(self) -> Mapping[str, KeyTerms]: ...


def key_refusal(facts: _KnowsKeys, key_id: str, now: int) -> str:
    """Why a key's signature does not count at a time (ms), in a sentence; empty if it does."""
    terms = facts.key_terms.get(key_id)
    why = "" if terms is None else terms.refusal(now)
    return f"the key {key_id} of {terms.owner} {why}" if terms is not None and why else ""
