"""The state of one charge: what was reserved, what it was settled for, and which of its steps are leased."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Segment

EVERYONE: Final = "everyone"
"""The one recipient of a model that is to be published."""


class StepLeases(NamedTuple):
    """How many steps of a run are leased, and who holds it: see :mod:`ledger.commands.runs.step_lease`.

    Attributes:
        generation: the live one, which alone may lease, post and release; the first is 1.
        steps: how many are leased, from the first one on.
        before: how many were leased when the live generation began.
        newest: the id of the live generation's newest lease; empty if it has none.
        granted: how many leases all generations got.
        refund: what the policies of the charge state about leased steps that were not taken; empty if one is silent.
        chain: the digest of the chain of the live generation's lease ids; empty as long as it has none.
        taken: how many steps count as taken at least, by the newest lease. Set with ``refund`` only, as ``chain`` is.
    """

    generation: int = 1
    steps: int = 0
    before: int = 0
    newest: str = ""
    granted: int = 0
    refund: str = ""
    chain: str = ""
    taken: int = 0

    @property
    def stated(self) -> tuple[int | str, ...]:
        """The values in its leaf: without fields of later versions that are not used."""
        without = self.generation, self.steps, self.before, self.newest, self.granted
        return tuple(self) if self.refund else without


class Charge(NamedTuple):
    """One run's charge. ``steps`` is what was charged, ``steps_posted`` what it was settled for.

    Attributes:
        author: the node that charged the run.
        recipients: the organisations that get the model, fixed before anything ran; ``(EVERYONE,)`` if it is to be
            published.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run; None where the charge does not say.
        notices: each model that was announced to the providers, and when (ms).
        leases: the leases of a run that leases its steps; empty once it is settled. None for any other run.
        post: the id of the post of a run that leased its steps.
        model: the digest of its one model, as the post names it.
        groups: for a charge that names ranges, how its ``partitions`` are grouped: a group's number and how many
            partitions in a row belong to it. ``prices`` then names the first partition of each group. None otherwise.
    """

    id: str
    contract: str
    actor: str
    author: int
    partitions: tuple[str, ...]
    plan: str
    steps: int
    steps_posted: int | None
    state: ChargeState
    key_id: str
    sealing: str
    key_release: str | None
    deadline: int
    prices: tuple[tuple[str, tuple[Segment, ...]], ...]
    recipients: tuple[str, ...]
    base: tuple[str, ...]
    index: int  # type: ignore[assignment]  # tuples have a method of that name, which is not used
    notices: tuple[tuple[str, int], ...] = ()
    pipeline: str | None = None
    leases: StepLeases | None = None
    post: str | None = None
    model: str | None = None
    groups: tuple[tuple[int, int], ...] | None = None

    @property
    def price_groups(self) -> tuple[tuple[tuple[str, ...], tuple[Segment, ...]], ...]:
        """The partitions that have one price, and that price; each partition is in one group."""
        if self.groups is None:
            # Of a list, not of a generator: most charges have one, and are asked often.
            return tuple([((ref,), segments) for ref, segments in self.prices])
        members = grouped(self.partitions, self.groups)
        return tuple((refs, segments) for refs, (_, segments) in zip(members, self.prices, strict=True))

    def price_of(self, partition: str) -> tuple[Segment, ...]:
        """Its price on one of its partitions. Raises: KeyError."""
        for refs, segments in self.price_groups:
            if partition in refs:
                return segments
        raise KeyError(partition)

    @property
    def is_meant_for_everyone(self) -> bool:
        """Whether its model is to be published."""
        return EVERYONE in self.recipients

    def is_meant_for(self, did: str) -> bool:
        """Whether its model is to go to an organisation."""
        return did in self.recipients or self.is_meant_for_everyone

    def entered(self, index: int, prices: tuple[tuple[str, tuple[Segment, ...]], ...]) -> Charge:
        """The same, made by the entry at ``index``, at these prices."""
        fields = [*self]
        fields[_PRICES], fields[_INDEX] = prices, index
        return Charge._make(fields)

    def settled(self, state: ChargeState, steps_posted: int | None) -> Charge:
        """The same, posted for ``steps_posted`` steps or voided; its leases are in the log only from then on."""
        fields = [*self]
        fields[_STATE], fields[_STEPS_POSTED] = state, steps_posted
        fields[_LEASES] = None if self.leases is None else StepLeases()
        return Charge._make(fields)

    def has_leased_since(self, before: Charge) -> bool:
        """Whether it is the same pending charge with other leases, which are dropped once it is settled."""
        return self.state is ChargeState.PENDING and self.leases != before.leases


_INDEX, _LEASES, _PRICES, _STATE, _STEPS_POSTED = map(
    Charge._fields.index, ("index", "leases", "prices", "state", "steps_posted")
)
"""Places of fields, read off their names: every run is settled, and `_replace` takes three times as long."""


@lru_cache(maxsize=512)
def grouped(partitions: tuple[str, ...], groups: tuple[tuple[int, int], ...]) -> tuple[tuple[str, ...], ...]:
    """The partitions of each group. Raises: ValueError, if the counts do not add up to the partitions."""
    members: list[list[str]] = []
    place = 0
    for number, count in groups:
        # Groups are numbered in the order of their first partitions.
        if number > len(members) or count < 1:
            message = f"group {number} is out of order"
            raise ValueError(message)
        if number == len(members):
            members.append([])
        members[number] += partitions[place : place + count]
        place += count
    if place != len(partitions):
        message = f"the groups are of {place} partitions, not of {len(partitions)}"
        raise ValueError(message)
    return tuple(map(tuple, members))
