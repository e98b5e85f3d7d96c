"""The leaves of the state: which parts it has, which of their records decide, and each record's name and bytes.

A part of :class:`ledger.domain.memory_state.MemoryState` is a mapping, and each of its records has a leaf under the
name of the part and its key. A settled charge and the key of its clean room have none: what is needed of them is read
from their entries. Neither has a document, whose digest is in the records that refer to it. One leaf more is of the
log: the names that are used, and the time of the last entry, before which no later one may lie. The losses of settled
charges are in the accounts, and in the sums by author and cut of the lineage, of which each has a leaf too.

A leaf's hash is salted by the last entry that touched its record, and its name: a person who may not read that entry
cannot try values of the record until one fits (as in CONIKS, Melara et al. 2015, section 3.1), and replay needs no
secret.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final, NamedTuple, get_origin, get_type_hints

from ledger.domain.charge_record import Charge, StepLeases
from ledger.domain.memory_state import MemoryState
from ledger.mechanisms.loss import Loss
from ledger.state_tree.sparse_tree import Leaf
from ledger.verifier import state_key, state_leaf_hash, state_salt
from ledger.wire.records import write

LOG: Final = "log"
SPANS: Final = "span_sums"
CUTS: Final = "cuts"


class LogFacts(NamedTuple):
    """What the log itself decides: a name is used once, and time never goes back.

    Attributes:
        names: SHA-256 over the names that entries use: a byte 0 for the entry's own id, 1 for a charge that it changes,
            2 for a key that it binds to a charge; the first 8 bytes of the name's SHA-256; the entry's index in 8
            bytes. They are ordered by index, kind and digest.
        time: the least time of the next entry (ms).
    """

    names: str
    time: int


class SpanFacts(NamedTuple):
    """The charges of one author between two cuts of the lineage (:mod:`ledger.domain.span_sums`).

    Attributes:
        runs: how many there are.
        sums: by partition, what they have posted and what they have pending.
    """

    runs: int
    sums: tuple[tuple[str, Loss, Loss], ...]


_MAPPINGS: Final = (dict, MutableMapping)
PARTS: Final[dict[str, Any]] = {
    name: hint for name, hint in get_type_hints(MemoryState).items() if get_origin(hint) in _MAPPINGS
} | {LOG: dict[str, LogFacts], SPANS: dict[tuple[int, int], SpanFacts], CUTS: dict[int, bool]}
"""The type of each part, by its name; a mapping from keys to records."""


class StatedRecord(NamedTuple):
    """A record that has a leaf.

    Attributes:
        value: the record; None where there is none any more.
    """

    part: str
    key: Any
    value: Any
    salt: bytes

    @property
    def name(self) -> bytes:
        """The name of its leaf."""
        return leaf_name(self.part, self.key)

    @property
    def leaf(self) -> Leaf:
        """Its leaf."""
        return Leaf(state_key(self.name), state_leaf_hash(self.salt, write(stated_value(self.value))), self)


_CHARGE_FIELDS: Final = Charge._fields.index("leases")
"""The fields that every charge states; those behind them are stated up to the last that is set."""


def stated_value(value: Any) -> Any:  # noqa: ANN401 - of any part
    """A record as its leaf states it, so that a charge without leases has the bytes that it always had."""
    if not isinstance(value, Charge):
        return value
    stated = len(value)
    while stated > _CHARGE_FIELDS and value[stated - 1] is None:
        stated -= 1
    return tuple(one.stated if isinstance(one, StepLeases) else one for one in value[:stated])


def leaf_name(part: str, key: object) -> bytes:
    """The name of a record's leaf: ``["accounts",["did:web:hospital.example/images/2026","global"]]``."""
    return write((part, key))


def salted(part: str, key: object, value: object, secret: bytes) -> StatedRecord:
    """A record with its salt; ``secret`` is of the entry that touched it (ledger.verifier.state_entry_secret)."""
    return StatedRecord(part, key, value, state_salt(secret, leaf_name(part, key)))
