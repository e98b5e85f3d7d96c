"""Charges and keys of clean rooms that have left memory, made again from the entries that made and changed them.

Memory holds where those entries are (:class:`ledger.book.state.position_index.PositionIndex`), the log holds what they
say, and each is proven under the root before it is used. No row of a projection has a part in it: a row that was
changed or removed changes no answer, and an entry that was stops the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import iter_unpack

from ledger.book.state.position_index import PositionIndex
from ledger.book.state.proven_entries import ProvenEntries
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import Read
from ledger.commands.governance.clock_correction import CorrectClock, corrected
from ledger.commands.governance.model_opening import OpenModel, key_of_opening
from ledger.commands.governance.model_release_notice import Announce, announced
from ledger.commands.runs.charge_entry import Charged
from ledger.commands.runs.key_release import Released
from ledger.commands.runs.settlement import Settled
from ledger.domain.charge_record import Charge
from ledger.domain.facts import SigningKey
from ledger.domain.memory_state import MemoryState


class SettledRecords:
    """Where each id, charge and clean room's key is named in the log, and the records that follow.

    Attributes:
        position: of the entry that is being applied.
        ids: of every entry, by its id.
        changes: of what changed a charge after its own entry, by the charge's id.
        keys: of what bound a key to a charge, by the key's id.
        charges: how many charges there are.
        revised: of each entry that changed a charge which was settled, its position and that of the charge.
        state: has the partitions that charges name; that of an empty log until the state that these records are of is
            made.
    """

    def __init__(self) -> None:
        """An empty log's."""
        self.position = 0
        self.ids, self.changes, self.keys = PositionIndex(), PositionIndex(), PositionIndex()
        self.charges = 0
        self.revised: deque[tuple[int, int]] = deque()
        self.state = MemoryState()

    def add_change(self, charge: str, *, is_settled: bool) -> None:
        """Note that the entry that is being applied changes a charge, which may be settled."""
        self.changes.add(charge, self.position)
        if is_settled:
            self.revised.extend((self.position, at) for at in self.ids.positions(charge))

    def changed_before(self, size: int) -> Iterator[int]:
        """Where charges are that one of the first ``size`` entries has changed after they were settled, each once."""
        while self.revised and self.revised[0][0] < size:
            yield self.revised.popleft()[1]

    def resume(self, names: bytes, charges: int) -> None:
        """Go on with the names that a log uses, as its leaf hashes them, and the number of its charges."""
        self.ids, self.changes, self.keys = (
            PositionIndex.of([place for kind, place in iter_unpack(">B16s", names) if kind == wanted])
            for wanted in range(3)
        )
        self.charges = charges

    def positions(self, charge: str) -> list[int]:
        """Every position that :meth:`charge` reads."""
        return [*self.ids.positions(charge), *self.changes.positions(charge)]

    def charge(self, entries: ProvenEntries, name: str, size: int | None = None) -> Charge | None:
        """A charge as it is, or as it was after ``size`` entries; None if there is none. Raises: Malformed."""
        if not self.ids.positions(name):
            return None
        positions = [at for at in self.positions(name) if size is None or at < size]
        entries.read(positions)
        charge: Charge | None = None
        for position in positions:
            charge = _changed(charge, entries.read_at(position), position, name, self.state)
        return charge

    def key(self, entries: ProvenEntries, key_id: str) -> SigningKey | None:
        """A clean room's key; None if there is none. Raises: Malformed."""
        for position in self.keys.positions(key_id):
            effect = entries.read_at(position).effect
            if isinstance(effect, Charged) and effect.charge.key_id == key_id:
                return effect.key_at(position)
            if isinstance(effect, Entry) and isinstance(body := effect.command_body, OpenModel):
                key = key_of_opening(body, effect.actor, position)
                if key.key_id == key_id:
                    return key
        return None


def _changed(charge: Charge | None, entry: Read, position: int, name: str, state: MemoryState) -> Charge | None:
    """The charge of this name from an entry on; of another name's entry, as it was before."""
    effect = entry.effect
    if isinstance(effect, Charged):
        return effect.charge_at(position, state) if entry.id == name else charge
    if charge is None:
        return None
    if isinstance(effect, Released | Settled):
        return effect.changed(charge) if effect.charge == name else charge
    if isinstance(effect, Entry) and isinstance(body := effect.command_body, Announce) and body.charge == name:
        return announced(charge, body, effect.time)
    if isinstance(effect, Entry) and isinstance(body := effect.command_body, CorrectClock):
        return corrected(charge, body)
    return charge
