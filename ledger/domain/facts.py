"""The state at an index of the log: organisations, keys, documents, datasets, partitions, contracts, charges, accounts.

Every value is a projection of entries and can be rebuilt from them; none is ever the truth itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple, Protocol

from ledger.crypto.organisation_keys import SignerKey, key_of
from ledger.domain.charge_record import Charge
from ledger.domain.key_terms import ExtendedQuorum, KeyTerms, RecoveryQuorum
from ledger.domain.organisation_graph import Node
from ledger.mechanisms.loss import Loss

GLOBAL: Final = "global"


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


# Records as numerous as runs are named tuples: built, compared and hashed in C.
class SigningKey(NamedTuple):
    """A public key and its owner; a clean room's key is bound to its one charge.

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
    """A TDP's dataset, identified by provider and dataset id together."""

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
    """A slice of a dataset with its budget.

    Attributes:
        terms: its rule as canonical JSON, as it opened; or as its first charge chose it, where that has a choice.
    """

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
        """The same with ``runs`` more runs (fewer, if negative)."""
        fields = [*self]
        fields[_RUNS] = self.runs + runs
        return Contract._make(fields)


_RUNS: Final = Contract._fields.index("runs")
"""The place of a field, read off its name: every charge counts, and `_replace` takes twice as long."""


class Audit(NamedTuple):
    """One audited run, as its clean room reported it.

    Attributes:
        pipeline: the digest of what was audited.
        above: whether its lower bound on ε disproves the ε that its plan was charged for.
    """

    charge: str
    pipeline: str
    above: bool
    index: int  # type: ignore[assignment]  # see SigningKey


class Account(NamedTuple):
    """The loss of one partition for one holder: settled for what ran, and reserved for what may yet run."""

    partition: str
    holder: str
    posted: Loss
    pending: Loss

    @property
    def loss(self) -> Loss:
        """The loss that counts: pending counts in full."""
        return self.posted + self.pending


class Span(NamedTuple):
    """The charges authored at one node whose index is at least ``first`` and less than ``before``."""

    author: int
    first: int
    before: int


class OpeningOrder:
    """The partitions of one dataset in order of opening.

    Attributes:
        refs: their references.
        places: the place of each in ``refs``.
    """

    def __init__(self, refs: Sequence[str] = ()) -> None:
        """The order of these partitions."""
        self.refs = tuple(refs)
        self.places = {ref: place for place, ref in enumerate(self.refs)}


class Facts(Protocol):
    """The whole state, read-only: what a gate may read."""

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
        """By organisation: those whose quorum extends to each SRO that they register."""

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
    def audits(self) -> Mapping[str, Audit]:
        """By the charge of the audited run."""

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

    def fetch_partitions(self, refs: Sequence[str]) -> None:
        """Read partitions for later look-ups, with their datasets, streams and policies; unknown ones are left out."""

    def fetch_accounts(self, partitions: Sequence[str], holders: Sequence[str]) -> None:
        """Prefetch accounts, and what was forgiven of them, in one step instead of one for each look-up."""

    @property
    def forgiven(self) -> Mapping[tuple[str, str], Loss]:
        """By partition and holder: what was settled when the last decree on the account was entered."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """By index in the log."""

    @property
    def publication(self) -> int | None:
        """The newest publication node; it reaches the others. None if there is none."""

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
