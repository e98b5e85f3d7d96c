"""The state at an index of the log: organisations, keys, documents, datasets, partitions, contracts, charges, accounts.

Every value is a projection of entries and can be rebuilt from them; none is ever the truth itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from ledger.crypto.organisation_keys import SignerKey, key_of
from ledger.domain.key_terms import ExtendedQuorum, KeyTerms, RecoveryQuorum
from ledger.domain.opening_order import OpeningOrder
from ledger.domain.organisation_graph import Node
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss, Segment

GLOBAL: Final = "global"
EVERYONE: Final = "everyone"
"""The one recipient of a model that is to be published."""


def holder_of(node: int) -> str:
    """The holder's name of a lineage: its node's index in the log."""
    return f"lineage:{node}"


@dataclass(frozen=True, slots=True)
class Organisation:
    """A legal body; ``node`` is its current node of the lineage graph.

    Attributes:
        moves: each node it has been at, with the time (ms) since when; the last is ``node``.
    """

    did: str
    name: str
    roles: tuple[str, ...]
    node: int
    moves: tuple[tuple[int, int], ...]
    index: int

    def node_at(self, time: int) -> int:
        """Its node at a time, or first of all if it was not registered yet."""
        return next((node for since, node in reversed(self.moves) if since <= time), self.moves[0][1])


# Values of which there are as many as runs are named tuples: made, compared and hashed without a step of Python.
class SigningKey(NamedTuple):
    """A public key and whose it is; a clean room's key is bound to its one charge.

    Attributes:
        x: of an Ed25519 key; of another, the whole JWK.
    """

    key_id: str
    owner: str
    x: str
    charge: str | None
    index: int  # type: ignore[assignment]  # tuples have a method of that name, which is not used

    @property
    def public(self) -> SignerKey:
        """The key itself."""
        return key_of(self.x)


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """One version of a domain's policy, in force from ``effective`` (ms) until a later version is."""

    domain: str
    version: int
    document: str
    issuer: str
    effective: int
    index: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a TDP offers; known by provider and dataset id together."""

    provider: str
    dataset: str
    domain: str
    document: str
    index: int
    recommendation: str | None = None
    """The digest of the newest recommendation of a budget."""


@dataclass(frozen=True, slots=True)
class StreamVersion:
    """One version of a dataset's stream; since the first one's entry only slices of the stream open in the dataset."""

    provider: str
    dataset: str
    version: int
    document: str
    index: int


@dataclass(frozen=True, slots=True)
class Partition:
    """A slice of a dataset with its budget; ``terms`` is its rule, fixed for life, as canonical JSON."""

    ref: str
    provider: str
    dataset: str
    epsilon: Fraction
    delta: Fraction
    relation: str
    unit: str
    unit_records_max: int
    records: int
    data_key: str
    terms: str
    opened: int
    retired: bool
    index: int
    commitments: tuple[str, ...] = ()


class Contract(NamedTuple):
    """A contract all its parties signed, known by its document's digest."""

    document: str
    id: str
    version: int
    consumer: str
    consumer_node: int
    providers: tuple[str, ...]
    starts: int
    ends: int
    runs: int
    index: int  # type: ignore[assignment]  # see SigningKey
    revoked: bool = False

    def counting(self, runs: int) -> Contract:
        """The same with so many more runs, or fewer."""
        return self._replace(runs=self.runs + runs)


class StepLeases(NamedTuple):
    """How many steps of a run are leased, and who holds it: see :mod:`ledger.commands.runs.step_lease`.

    Attributes:
        generation: the live one, which alone may lease, post and release; the first is 1.
        steps: so many, from the first one on, are leased.
        before: so many were leased when the live generation began.
        newest: the id of the live generation's newest lease; empty if it has none.
        granted: how many leases all generations got.
        refund: what the policies of the charge state about leased steps that were not taken; empty if one is silent.
        chain: the digest of the chain of the live generation's lease ids; empty as long as it has none.
        taken: so many steps count as taken at least, by the newest lease. Kept with ``refund`` alone, as ``chain`` is.
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
        """As its leaf states it: without what came later, where that is not used."""
        return tuple(self) if self.refund else self[:5]


class Charge(NamedTuple):
    """One run's charge. ``steps`` is what was charged, ``steps_posted`` what it was settled for.

    Attributes:
        author: the node that charged the run.
        recipients: to whom the model goes, fixed before anything ran; ``(EVERYONE,)`` if it is to be published.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run; None where the charge does not say.
        notices: each model that was announced to the providers, and when (ms).
        leases: of a run that leases its steps, what is leased; forgotten once it is settled. None of any other run.
        post: the id of the post of a run that leased its steps.
        model: the digest of its one model, as the post names it.
        groups: of a charge that names ranges, how its ``partitions`` are grouped: a group's number and how many
            partitions in a row are of it. ``prices`` then names the first partition of each group. None of any other.
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
    index: int  # type: ignore[assignment]  # see SigningKey
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
            return tuple(((ref,), segments) for ref, segments in self.prices)
        members = grouped(self.partitions, self.groups)
        return tuple((refs, segments) for refs, (_, segments) in zip(members, self.prices, strict=True))

    def price_of(self, partition: str) -> tuple[Segment, ...]:
        """What it costs on one of its partitions. Raises: KeyError."""
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

    def settled(self, state: ChargeState, steps_posted: int | None) -> Charge:
        """The same, posted for so many steps or voided; what was leased is in the log alone from then on."""
        leases = None if self.leases is None else StepLeases()
        return self._replace(state=state, steps_posted=steps_posted, leases=leases)

    def has_leased_since(self, before: Charge) -> bool:
        """Whether it is the same pending charge with other leases, of which nothing is kept once it is settled."""
        return self.state is ChargeState.PENDING and self.leases != before.leases


@lru_cache(maxsize=512)
def grouped(partitions: tuple[str, ...], groups: tuple[tuple[int, int], ...]) -> tuple[tuple[str, ...], ...]:
    """The partitions of each group. Raises: ValueError, where the groups are not of so many partitions."""
    members: list[list[str]] = []
    place = 0
    for number, count in groups:
        # A group gets its number where its first partition is.
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


class Account(NamedTuple):
    """The loss of one partition for one holder: settled for what ran, and reserved for what may yet run."""

    partition: str
    holder: str
    posted: Loss
    pending: Loss

    @property
    def loss(self) -> Loss:
        """What counts: pending counts in full."""
        return self.posted + self.pending


class Span(NamedTuple):
    """The charges authored at one node whose index is at least ``first`` and less than ``before``."""

    author: int
    first: int
    before: int


class Facts(Protocol):
    """The whole state, to read: what a gate may see."""

    @property
    def organisations(self) -> Mapping[str, Organisation]:
        """By DID."""

    @property
    def keys(self) -> Mapping[str, SigningKey]:
        """By key id."""

    @property
    def key_terms(self) -> Mapping[str, KeyTerms]:
        """By key id: the terms of the organisations' keys that a command on keys has named."""

    @property
    def extended_quorums(self) -> Mapping[str, ExtendedQuorum]:
        """By organisation: those whose quorum is that of each SRO too which they register."""

    @property
    def recovery_quorums(self) -> Mapping[str, RecoveryQuorum]:
        """By DID: who may recover an organisation's key."""

    @property
    def documents(self) -> Mapping[str, bytes]:
        """By SHA-256."""

    @property
    def policies(self) -> Mapping[str, tuple[PolicyVersion, ...]]:
        """By domain, in order of version."""

    @property
    def datasets(self) -> Mapping[tuple[str, str], Dataset]:
        """By provider and dataset id."""

    @property
    def streams(self) -> Mapping[tuple[str, str], tuple[StreamVersion, ...]]:
        """By provider and dataset id, in order of version."""

    @property
    def partitions(self) -> Mapping[str, Partition]:
        """By reference."""

    def opening_order(self, dataset: str) -> OpeningOrder:
        """The partitions of a dataset (``provider/dataset``) in order of opening."""

    @property
    def contracts(self) -> Mapping[str, Contract]:
        """By the document's digest."""

    @property
    def contract_heads(self) -> Mapping[str, str]:
        """By contract id: the digest of its newest version."""

    @property
    def charges(self) -> Mapping[str, Charge]:
        """By id."""

    @property
    def accounts(self) -> Mapping[tuple[str, str], Account]:
        """By partition and holder; an account without charges is absent."""

    def fetch_accounts(self, partitions: Sequence[str], holders: Sequence[str]) -> None:
        """Read accounts, and what was forgiven of them, in one step where each look-up would be one."""

    @property
    def forgiven(self) -> Mapping[tuple[str, str], Loss]:
        """By partition and holder: what was settled when the last decree on the account was entered."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """By index in the log."""

    @property
    def publication(self) -> int | None:
        """The newest node of what was made public; it reaches the others. None if there is none."""

    def accounts_of(self, holder: str) -> list[Account]:
        """Every account of one holder, by partition."""

    def keys_of(self, did: str) -> list[SigningKey]:
        """Every key that was ever an organisation's, in the order of their entries."""

    def pending_charges(self) -> Iterable[Charge]:
        """The charges that are not settled, in any order."""

    def runs(self, spans: Iterable[Span]) -> int:
        """How many charges there are in these spans, which have none in common."""

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss, summed over the charges in these spans."""
