"""What stands, in the model's own words: runs, partitions, contracts, and who knows what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from tests.ledger.organisation_lineage.run_sets import Sets, replayed

Vector = tuple[Fraction | int, ...]


@dataclass(frozen=True)
class Ask:
    """A command in the model's words; ``told`` is what its kind needs.

    Attributes:
        keys: the names of the keys by which organisations sign, where it is not the one that bears their name.
    """

    kind: str
    id: str
    actor: str
    told: Mapping[str, Any]
    flaw: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)

    def key_of(self, did: str) -> str:
        """The name of the key by which an organisation signs."""
        return self.keys.get(did, did)


class Told(NamedTuple):
    """What a command must get: the outcome, its place in the log, and whether it had it before."""

    word: str
    place: int | None
    repeated: bool = False


@dataclass
class Key:
    """An organisation's signing key, and when its signatures count."""

    owner: str
    index: int
    starts: int = 0
    until: int | None = None
    suspended_by: str | None = None
    revoked: int | None = None

    def counts(self, now: int) -> bool:
        """Whether a signature that is shown now counts."""
        if self.revoked is not None or self.suspended_by is not None:
            return False
        return self.starts <= now and (self.until is None or now < self.until)


@dataclass
class Run:
    """One charge.

    Attributes:
        leases: whether it leases its steps; then ``leased`` are, by ``granted`` leases in all, of which ``newest`` is
            the last of this ``generation``.
        model: the one that its post names, and the id of that post.
        notices: by model, when it was announced.
    """

    id: str
    actor: str
    contract: str
    partitions: tuple[str, ...]
    costs: tuple[Vector, ...]
    steps: int
    deadline: int
    recipients: tuple[str, ...]
    room: str
    plan: str
    state: str = "pending"
    ran: int = 0
    released: bool = False
    notices: dict[str, list[int]] = field(default_factory=dict)
    index: int = 0
    leases: bool = False
    leased: int = 0
    generation: int = 1
    newest: str = ""
    granted: int = 0
    post: str = ""
    model: str | None = None

    def may_name(self, model: str) -> bool:
        """Whether this is the model of the run: of one that says none and took steps, any."""
        return model == self.model or (self.model is None and not self.leases and self.ran != 0)

    def loss(self, partition: str) -> tuple[Vector, Vector]:
        """Posted and pending on one partition."""
        cost = dict(zip(self.partitions, self.costs, strict=True))[partition]
        pending = self.steps if self.state == "pending" else 0
        return tuple(self.ran * at for at in cost), tuple(pending * at for at in cost)


@dataclass
class Partition:
    """A budget; ``caps`` is what fits, by ε."""

    kind: str
    epsilon: str
    opened: int
    caps: Mapping[str, Vector] = field(default_factory=dict)
    retired: bool = False

    def fits(self, loss: Vector, epsilon: str) -> bool:
        """Whether an account stays under a cap of so much ε, or of the budget if that is less."""
        least = min(epsilon, self.epsilon, key=Fraction)
        if self.kind == "pure":
            return loss[0] <= Fraction(least)
        *orders, slack = zip(loss, self.caps[least], strict=True)
        if self.kind == "reference":
            return slack[0] <= slack[1]
        return slack[0] <= slack[1] and any(at <= bound for at, bound in orders if bound is not None)


@dataclass
class Contract:
    """One version of a contract."""

    id: str
    version: int
    consumer: str
    starts: int
    ends: int
    runs_max: int
    runs: int = 0
    revoked: bool = False


@dataclass
class Standing:
    """What stands.

    Attributes:
        costs: what a step of a plan costs under a kind of rule; None where it has no price.
        lineage: the policy's cap on each lineage.
        rights: the contracts that each may charge under.
        own: those of them that it goes on with alone, since it stood together with colluders.
        handed: when a giver last handed a model to those who stand somewhere.
        joint: where colluders stand together, or who merged with one of them or split from them.
        forgiven: what a decree took from an account's standing against its caps; it stays lost.
        loud: the plans that no contract permits.
        quorums: by organisation, who may recover it, and how many of them.
        streams: by dataset, the newest version of its stream. recommended: likewise, and the ε that it recommends.
        effective: from when the newest policy is in force.
        corrected: whether the log's time once went back.
    """

    costs: Mapping[tuple[str, str], Vector | None]
    lineage: str
    sro: str
    loud: frozenset[str]
    size: int = 0
    last: int = 0
    roles: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[bytes, str, int]] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    contracts: dict[str, Contract] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    rights: dict[str, set[str]] = field(default_factory=dict)
    own: dict[str, set[str]] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    rooms: dict[str, str] = field(default_factory=dict)
    forgiven: dict[tuple[str, int | None], Vector] = field(default_factory=dict)
    coalitions: dict[int, str] = field(default_factory=dict)
    moves: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    released: bool = True
    version: int = 1
    sets: Sets = field(default_factory=Sets)
    log: list[tuple[int, int, tuple[Any, ...]]] = field(default_factory=list)
    suspects: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    joint: set[int] = field(default_factory=set)
    handed: dict[tuple[str, int], int] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    quorums: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    datasets: set[str] = field(default_factory=set)
    streams: dict[str, int] = field(default_factory=dict)
    recommended: dict[str, tuple[int, str]] = field(default_factory=dict)
    effective: int = 0
    corrected: bool = False

    def register(self, did: str, role: str, index: int, now: int) -> None:
        """An organisation, with nothing but what is public."""
        self.roles[did], self.rights[did], self.own[did] = role, set(), set()
        self.moves[did], self.keys[did] = [(now, index)], Key(did, index)
        self._happened(now, index, "register", did)

    def _beside(self, did: str) -> list[str]:
        return [other for other, node in self.sets.stands.items() if node == self.sets.stands[did]]

    def account(self, ref: str, holder: int | None) -> tuple[Vector, Vector]:
        """Posted and pending of a node, or of everyone: each run that is known, once."""
        names = set(self.runs) if holder is None else self.sets.knows[holder]
        losses = [self.runs[name].loss(ref) for name in names if ref in self.runs[name].partitions]
        width = len(self.costs["pure", self.partitions[ref].kind] or (0,))
        zero: Vector = (0,) * width
        posted, pending = ([zero, *(loss[place] for loss in losses)] for place in (0, 1))
        return tuple(map(sum, zip(*posted, strict=True))), tuple(map(sum, zip(*pending, strict=True)))

    def _happened(self, now: int, index: int, *event: Any) -> None:  # noqa: ANN401
        self.log.append((now, index, event))
        if event[0] == "collusion":
            self.sets = replayed(self.log, self.suspects)
        else:
            self.sets.play(index, *event)
        for did, node in self.sets.stands.items():
            if node == index and did in self.moves and self.moves[did][-1][1] != index:
                self.moves[did].append((now, index))

    def _colluded(self, did: str) -> bool:
        return any(node in self._joint() for _, node in self.moves[did])

    def _joint(self) -> set[int]:
        """Where colluders stand together."""
        return {index for _, index, event in self.log if event[0] == "collusion"}

    def _share_rights(self, index: int, before: set[int], among: list[str]) -> None:
        """Those who stand at ``index`` now go on with the contracts of all ``among``, who stood at ``before``.

        Not with what one of them holds alone; and where colluders are among them each goes on with its own.
        """
        dids = [did for did, node in self.sets.stands.items() if node == index]
        if before & self.joint:
            self._stand_together(index)
            return
        union = set[str]().union(*(self.rights[did] - self.own[did] for did in among))
        for did in dids:
            self.rights[did] |= union
            self.own[did] -= union

    def _stand_together(self, index: int) -> None:
        """Those who stand at ``index`` now are not one body."""
        self.joint.add(index)
        for did, node in self.sets.stands.items():
            if node == index:
                self.own[did] = set(self.rights[did])

    def stood(self, did: str, time: int) -> int:
        """Where an organisation stood."""
        return next((node for since, node in reversed(self.moves[did]) if since <= time), self.moves[did][0][1])
