"""Documents beside the log: as whom a caller stores one, and which of them it may read.

Who may read a document follows from its content, or from an entry that names it. The content is read once, in the
reader's own time: a document never changes under its digest, so the little that decides is kept by it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.auth.visibility import visible_entry
from ledger.book.document_store import Storer
from ledger.commands.named_documents import named_documents
from ledger.domain.facts import Facts
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.domain.outcomes import ChargeState
from ledger.domain.roles import SRO, TDP, TSO
from ledger.store.snapshot import Snapshot
from ledger.wire.malformed import Malformed
from policy.decisions.documents_in_force import read_policy
from policy.documents.document_text import read_text

KNOWN_MAX: Final = 1_024
"""Documents of which it is known whom they concern; the one that was requested least recently is read again."""
NAMED_MAX: Final = 64
"""Organisations that a contract names; no contract is entered with more, and a text with more concerns no one."""
NAME_CHARACTERS_MAX: Final = 256
"""Of a document's kind and of an organisation's name; more is no kind of document, and no organisation."""
_PROVIDING: Final = frozenset({SRO, TDP, TSO})
_ADVICE: Final = frozenset({"recommendation", "stream"})
_OPEN: Final = frozenset({"policy", "dataset"})


def storer_of(caller: Caller, facts: Facts) -> Storer:
    """As whom a caller stores documents."""
    if caller.charge:
        charge = facts.charges.get(caller.charge)
        pending = charge is not None and charge.state is ChargeState.PENDING
        return Storer(caller.organisation, caller.charge, pending=pending)
    return Storer(caller.organisation, provides=bool(_PROVIDING & set(caller.roles)))


class Concerned(NamedTuple):
    """Whom a document concerns, by its content: its kind, and the organisations that it names."""

    kind: str
    organisations: frozenset[str]


class ReadDocuments:
    """Lets callers read documents: keeps whom those concern that were requested lately, by digest; for any thread."""

    def __init__(self, quotas: CallerQuotas) -> None:
        """A text is read within the quota of pricing of the caller who requests it first."""
        self._quotas = quotas
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Concerned] = OrderedDict()

    def read(self, caller: Caller, facts: Snapshot, sha256: str, entry: str | None) -> bytes | None:
        """The bytes of a document, if it is there and the caller may read it.

        A contract on record is for those who see it, whichever entry names it. Any other document is for those who see
        an entry that names it and is no refusal: a caller's own command may name every digest, also of what is hidden
        from it. Without an entry it is for those whom it concerns.

        Args:
            entry: the id of an entry that names it, where one was given.

        Raises:
            Malformed: if no command can have this id.
            Problem: 404, if the entry is hidden from the caller or missing; 429, if no time is left to the caller to
                have the document read.
        """
        data = facts.documents.get(sha256)
        if data is None or caller.sees_all:
            return data
        found = None if entry is None else visible_entry(facts, entry, caller)[1]
        if (contract := facts.contracts.get(sha256)) is not None:
            sees = caller.sees_contract(contract, facts)
        elif found is not None:
            sees = not found.code.refused and sha256 in named_documents(found.request)
        else:
            # A clean room reads by entries alone.
            sees = not caller.charge and _is_open_to(caller, self._concerned(caller, sha256, data), facts)
        return data if sees else None

    def _concerned(self, caller: Caller, sha256: str, data: bytes) -> Concerned:
        with self._lock:
            if (known := self._known.get(sha256)) is not None:
                self._known.move_to_end(sha256)
                return known
        self._quotas.check_pricing(caller)
        with self._quotas.metered(caller):
            found = _concerned(data)
        with self._lock:
            self._known[sha256] = found
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return found


def _is_open_to(caller: Caller, concerned: Concerned, facts: Facts) -> bool:
    """By the document's content: its parties may read a contract before it is entered, everyone what governs all.

    A caller that sees a provider's datasets reads what is recommended for them.
    """
    if concerned.kind in _ADVICE:
        return any(caller.sees_provider(name, facts) for name in concerned.organisations)
    return concerned.kind in _OPEN or caller.organisation in concerned.organisations


def _concerned(data: bytes) -> Concerned:
    no_one = Concerned("", frozenset())
    try:
        # So long is a policy alone, which is parsed once.
        if len(data) > DOCUMENT_BYTES_MAX:
            return Concerned(str(read_policy(data).__struct_config__.tag), frozenset())
        known = read_text(data, DOCUMENT_BYTES_MAX).value
    except Malformed:
        return no_one
    kind = known.get("kind") if isinstance(known, dict) else None
    if not isinstance(known, dict) or not isinstance(kind, str):
        return no_one
    if kind == "contract":
        waivers = [waiver.get("issuer") for waiver in _items_of(known, "waivers") if isinstance(waiver, dict)]
        return _naming("contract", [known.get("tdc"), *_items_of(known, "tdps"), *waivers])
    if kind in _ADVICE:
        return _naming(kind, [known.get("provider")])
    return Concerned(kind, frozenset()) if kind in _OPEN else no_one


def _naming(kind: str, names: list[object]) -> Concerned:
    """What names so many organisations; no one's, where they are too many to keep."""
    kept = {name for name in names if isinstance(name, str) and len(name) <= NAME_CHARACTERS_MAX}
    return Concerned(kind, frozenset(kept)) if len(kept) <= NAMED_MAX else Concerned("", frozenset())


def _items_of(value: Mapping[str, object], name: str) -> list[Any]:
    items = value.get(name)
    return items if isinstance(items, list) else []
