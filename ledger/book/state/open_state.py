"""What the writer keeps of the state: all that is not a run, and the runs that are not settled.

A charge that is posted, voided or lapsed is needed no more to decide on others: its loss is in the accounts and in the
sums of its author (:mod:`ledger.domain.span_sums`). It leaves memory, and so does the key of its clean room. A command
that names one of them gets it from the log (:mod:`ledger.book.state.settled_records`). That a charge is open, or that a
key is new, is known from memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any, Generic, TypeVar, overload

from ledger.accounts.summed_state import SummedState
from ledger.book.state.proven_entries import ProvenEntries
from ledger.book.state.settled_records import SettledRecords
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Partition, SigningKey, Span
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import Node
from ledger.domain.outcomes import ChargeState
from ledger.domain.span_sums import SpanSums
from ledger.mechanisms.loss import Loss
from ledger.state_tree.journal import Noted, TrackedPart
from ledger.state_tree.leaves import CUTS, SPANS
from ledger.store.database_state import PROJECTIONS
from ledger.store.documents import StoredDocuments

D = TypeVar("D")
V = TypeVar("V")
Changes = dict[str, list[tuple[Any, Any]]]
"""Keys and values by part of the state, as :data:`ledger.store.database_state.PROJECTIONS` names them."""


class Part(TrackedPart):
    """One part of the state, with the keys that were set since its rows were last written."""

    def __init__(self, name: str, noted: list[Noted]) -> None:
        """Begin empty; ``noted`` gets each record that is set."""
        super().__init__(name, noted)
        self.changed: dict[Any, None] = {}

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - of any part
        super().__setitem__(key, value)
        self.changed[key] = None


class LineageNodes(Part):
    """The nodes of the lineage graph: each new one is a cut (see :class:`ledger.domain.span_sums.SpanSums`)."""

    def __init__(self, noted: list[Noted], sums: SpanSums) -> None:
        """Pass every cut to ``sums``."""
        super().__init__("nodes", noted)
        self.sums = sums

    def __setitem__(self, key: int, value: Node) -> None:
        if key not in self:
            self.sums.cut(key)
        super().__setitem__(key, value)


class OpenPart(MutableMapping[str, V], Generic[V]):
    """A part of the state of which only the open records are in memory; any other is looked up when it is named.

    Its length and its order are those of the open ones.

    Attributes:
        open: the records in memory.
        changed: the keys that were set since rows were last written.
    """

    def __init__(self, name: str, noted: list[Noted], look_up: Callable[[str], V | None]) -> None:
        """``look_up`` gives a record that is not in memory, None if there is none; ``noted`` gets what is set."""
        self._name, self._noted = name, noted
        self.open: dict[str, V] = {}
        self.changed: dict[str, None] = {}
        self._look_up = look_up
        self._found: dict[str, V | None] = {}

    def __getitem__(self, name: str) -> V:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    @overload
    def get(self, name: str, default: None = None) -> V | None: ...

    @overload
    def get(self, name: str, default: D) -> V | D: ...

    def get(self, name: str, default: D | None = None) -> V | D | None:
        """The record of this name, looked up where it is not in memory."""
        value = self.open.get(name)
        if value is None:
            if name not in self._found:
                self._found[name] = self._look_up(name)
            value = self._found[name]
        return default if value is None else value

    def __setitem__(self, name: str, value: V) -> None:
        self.open[name] = value
        self.changed[name] = None
        self._noted.append((self._name, name, value))

    def __delitem__(self, name: str) -> None:
        del self.open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.open)

    def __len__(self) -> int:
        return len(self.open)

    def begin(self) -> None:
        """Forget what was looked up."""
        self._found.clear()


class OpenCharges(OpenPart[Charge]):
    """The pending charges, and those settled since rows were last written."""

    def __init__(
        self, noted: list[Noted], records: SettledRecords, sums: SpanSums, look_up: Callable[[str], Charge | None]
    ) -> None:
        """Note in ``records`` and ``sums`` what becomes of each."""
        super().__init__("charges", noted, look_up)
        self._records, self.sums = records, sums

    def __setitem__(self, name: str, value: Charge) -> None:
        before = self.open.get(name)
        if value.index == self._records.position:
            self.sums.add(value)
            self._records.charges += 1
        elif before is None or not value.has_leased_since(before):
            self._records.add_change(name, is_settled=before is None)
            if before is not None and before.state is ChargeState.PENDING is not value.state:
                self.sums.settle(value)
        super().__setitem__(name, value)

    def is_pending(self, name: str) -> bool:
        """Whether there is such a charge and it is not settled; known from memory."""
        charge = self.open.get(name)
        return charge is not None and charge.state is ChargeState.PENDING


class OpenKeys(OpenPart[SigningKey]):
    """The keys of organisations, and those of the clean rooms of charges in memory."""

    def __init__(
        self, noted: list[Noted], records: SettledRecords, look_up: Callable[[str], SigningKey | None]
    ) -> None:
        """Note in ``records`` each key that is bound to a charge."""
        super().__init__("keys", noted, look_up)
        self._records = records

    def __setitem__(self, name: str, value: SigningKey) -> None:
        if value.charge is not None:
            self._records.keys.add(name, self._records.position)
        super().__setitem__(name, value)


class OpenState(SummedState):
    """The state without what is settled.

    Attributes:
        parts: the parts by name, with what changed in each.
        folding: whether entries are applied whose rows another has written, so that no record is looked up for them.
    """

    def __init__(self, documents: StoredDocuments, records: SettledRecords, entries: ProvenEntries) -> None:
        """The state of an empty log, which reads what is settled by ``entries``."""
        self._records, self.sums = records, SpanSums()
        noted: list[Noted] = []
        look_up = partial(records.charge, entries)
        self.open_charges = OpenCharges(noted, records, self.sums, look_up)
        self.open_keys = OpenKeys(noted, records, lambda key_id: records.key(entries, key_id))
        self.parts: dict[str, Part | OpenPart[Any]] = {
            **{name: Part(name, noted) for name in PROJECTIONS},
            "charges": self.open_charges,
            "keys": self.open_keys,
            "nodes": LineageNodes(noted, self.sums),
        }
        parts: dict[str, Any] = {**self.parts}
        super().__init__(noted, documents=documents, **parts)
        records.state = self
        self.folding = False

    def resume(self, size: int, parts: Mapping[str, Mapping[Any, Any]]) -> None:
        """Go on from the records that the leaves of a state of ``size`` entries are of; none of them is noted."""
        for name, part in self.parts.items():
            held: dict[Any, Any] = part.open if isinstance(part, OpenPart) else part
            # Of a dictionary's own, which informs no one.
            dict.update(held, parts[name])
        cuts = [*parts["nodes"], *parts[CUTS]]
        self.sums.resume(size, cuts, ((*place, *one) for place, one in parts[SPANS].items()))

    @property
    def in_memory(self) -> MemoryState:
        """What is in memory, for other threads: a record that is not is absent there, and never looked up."""
        return MemoryState(self.documents, self.organisations, self.open_keys.open)

    def open_charge(self, name: str) -> tuple[Charge, tuple[Partition, ...]] | None:
        """A pending charge and its partitions, None if there is none; for any thread."""
        # One look-up in a dictionary that the writer changes gives what was there or what is.
        charge = self.open_charges.open.get(name)
        if charge is None or charge.state is not ChargeState.PENDING:
            return None
        return charge, tuple(self.partitions[ref] for ref in charge.partitions)

    def in_memory_parts(self) -> dict[str, dict[Any, Any]]:
        """What is in memory, by part."""
        self.put_down()
        return {name: part.open if isinstance(part, OpenPart) else part for name, part in self.parts.items()}

    def begin(self) -> None:
        """Begin a batch: forget what was looked up for the last one."""
        self.open_charges.begin()
        self.open_keys.begin()

    def change_charge(self, name: str, change: Callable[[Charge], Charge]) -> None:
        """Change a charge. Of a settled one whose row another has written, it is only noted where that is said."""
        if self.folding and name not in self.open_charges.open:
            self._records.add_change(name, is_settled=True)
            self.noted.append(("charges", name, None))
        else:
            super().change_charge(name, change)

    def take_changes(self) -> Changes:
        """What changed since the last call, by part; what is settled leaves memory."""
        self.put_down()
        found = {name: [(key, part[key]) for key in part.changed] for name, part in self.parts.items() if part.changed}
        self.forget_changes()
        return found

    def forget_changes(self) -> None:
        """The same, where no one needs to know what changed."""
        self.put_down()
        charges, keys = self.open_charges.open, self.open_keys.open
        for name in self.open_charges.changed:
            charge = charges[name]
            if charge.state is not ChargeState.PENDING:
                del charges[name]
                keys.pop(charge.key_id, None)
        for key_id in self.open_keys.changed:
            key = keys.get(key_id)
            if key is not None and key.charge is not None and key.charge not in charges:
                del keys[key_id]
        for part in self.parts.values():
            part.changed.clear()

    def runs(self, spans: Iterable[Span]) -> int:
        """How many charges there are in these spans."""
        return self.sums.runs(spans)

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss of the charges in these spans."""
        return self.sums.exposures(spans)
