"""A world with a partition under each rule, the same to the book and to the model; commands of the model, signed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import select

from client.keys.signer import Signer
from ledger.book.book import Submission
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL, holder_of
from ledger.store.tables import DOCUMENT
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from tests.factories.documents import NONCE, NOW, contract, contract_id, plan, policy
from tests.factories.memory import MemoryWorld
from tests.factories.people import BANK_A, BANK_B, BANK_C, DAY_MS, HOSPITAL, MERGED, SRO, STRANGER, TSO, CleanRoom
from tests.factories.stored import open_world
from tests.faults.model import Model
from tests.faults.signed_keys import SignedKeys
from tests.faults.standing import Ask, Contract, Vector

BANKS: Final = (BANK_A, BANK_B, BANK_C, MERGED)
ROLES: Final = {SRO: "SRO", HOSPITAL: "TDP", **dict.fromkeys(BANKS, "TDC"), TSO: "TSO"}
LINEAGE: Final = "2"
RUNS_MAX: Final = 40
KINDS: Final = {"pure": "2.5", "reference": "3", "renyi": "3"}
"""The ε of the partition under each rule."""
PLANS: Final = ("pure", "poisson", "loud")


def ref_of(name: str) -> str:
    """A partition of the hospital's."""
    return f"{HOSPITAL}/digits/{name}"


def plan_of(name: str, steps: int) -> c.Object:
    """A run of so many steps: each of a sixteenth of a nat at most, or of sampled Gaussian noise."""
    if name == "pure":
        step: c.Object = {"epsilon": "0.0625", "kind": "pure", "relation": "REPLACE_SPECIAL", "v": 1}
        return {
            "kind": "mechanism",
            "mechanism": {"count": steps, "kind": "self_composed", "mechanism": step, "v": 1},
            "v": 1,
        }
    return plan(30 * steps, "2") if name == "poisson" else plan(30 * steps, "0.5")


def steps_of(name: str, steps: int) -> int:
    """How many steps that is."""
    return steps if name == "pure" else 30 * steps


def _policy(version: int, moment: int, *, released: bool) -> dict[str, Any]:
    return {
        **policy(),
        "effective": format_time(moment),
        "lineage": {"epsilon_max": LINEAGE},
        "mechanisms": ["poisson_gaussian", "pure"],
        "model_release": released,
        "rules": ["renyi", "reference"],
        "version": version,
    }


def _contract(bank: str, version: int) -> dict[str, Any]:
    return {**contract(bank), "runs_max": RUNS_MAX, "version": version}


def _partition(kind: str) -> dict[str, Any]:
    changes: dict[str, Any] = {"epsilon": KINDS[kind]}
    if kind == "pure":
        changes["delta"] = "0"
    if kind == "reference":
        changes |= {"load": plan(50, "2"), "rule": "reference"}
    return changes


class ModelledWorld(SignedKeys):
    """A world in which the commands of the model are signed.

    Attributes:
        straight: the same commands decided by the core alone, entry by entry; None until :meth:`follow`.
    """

    straight: MemoryWorld | None = None

    def founding(self) -> list[Submission]:
        """Everything that a charge needs."""
        return [
            *self.founding_with(
                roles=ROLES,
                governing=_policy(1, NOW, released=True),
                partitions={kind: _partition(kind) for kind in KINDS},
                contracts=[_contract(bank, 1) for bank in BANKS],
            )
        ]

    def follow(self) -> None:
        """Begin a straight path beside the book: what the core alone decides, from what the book holds now."""
        self.straight = MemoryWorld(self.clock)
        with self.book.read() as facts:
            rows = facts.connection.execute(select(DOCUMENT)).mappings()
            self.straight.state.documents = {row["digest"]: bytes(row["data"]) for row in rows}
            self.straight.adopt(facts.entry(index) for index in range(facts.size))

    def put(self, data: bytes, signer: Signer) -> str:
        """Store bytes beside the log, of the straight path too; their digest."""
        if self.straight is not None:
            self.straight.put(data, signer)
        return super().put(data, signer)

    def submission(self, ask: Ask, now: int) -> Submission:
        """The command that an ask is, at a time of the book."""
        self.keys = ask.keys
        try:
            made = getattr(self, f"_{ask.kind}", self._plain)(ask, now)
        finally:
            self.keys = {}
        assert isinstance(made, Submission)
        if ask.flaw == "bytes":
            return replace(made, raw=made.raw[:-1])
        if ask.flaw == "loose":
            return replace(made, raw=made.raw.replace(b":", b": ", 1))
        if ask.flaw == "signature":
            return replace(made, signature=self.signers[STRANGER].sign(made.raw))
        return made

    def _plain(self, ask: Ask, now: int) -> Submission:
        del now
        told = {name: [*value] if isinstance(value, tuple) else value for name, value in ask.told.items()}
        by: Any = told.pop("by", None)
        body = {_FIELDS[ask.kind].get(name, name): value for name, value in told.items() if value is not None}
        return self.command(ask.actor, ask.kind, body, ask.id, CleanRoom(by).signer if by else None)

    def _organisation(self, ask: Ask, now: int) -> Submission:
        del now
        return self.registration(ask.told["did"], ask.told["role"], name=ask.id, actor=ask.actor)

    def _policy(self, ask: Ask, now: int) -> Submission:
        del now
        content = _policy(ask.told["version"], ask.told["effective"], released=ask.told["released"])
        return self.document("policy", content, ask.id, ask.actor, SRO)

    def _contract(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told["contract"]
        content = _contract(told.consumer, told.version)
        return self.document("contract", content, ask.id, ask.actor, told.consumer, HOSPITAL)

    def _decree(self, ask: Ask, now: int) -> Submission:
        del now
        node = ask.told["node"]
        body = {"holder": GLOBAL if node is None else holder_of(node), "partition": ask.told["ref"], "reason": "tried"}
        return self.command(ask.actor, ask.kind, body, ask.id)

    def _partition(self, ask: Ask, now: int) -> Submission:
        del now
        name = ask.told["ref"].rpartition("/")[2]
        made = self.partition(name, **_partition(ask.told["kind"]))
        return self._as(made, ask)

    def _as(self, made: Submission, ask: Ask) -> Submission:
        command: Any = c.parse(made.raw, len(made.raw))
        return self.command(ask.actor, ask.kind, command["body"], ask.id)

    def _charge(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told
        body: c.Object = {
            "clean_room": CleanRoom(told["room"]).to_json(),
            "contract": told["contract"],
            "deadline": told["deadline"],
            "partitions": [*told["partitions"]],
            "plan": plan_of(told["plan"], told["steps_told"]),
        }
        for name in ("recipients", "base"):
            if told[name]:
                body[name] = [*told[name]]
        if told["leases"]:
            body["step_leases"] = True
        return self.command(ask.actor, ask.kind, body, ask.id)

    def _key_release(self, ask: Ask, now: int) -> Submission:
        told, clock = ask.told, self.clock.now
        self.clock.now = now - (DAY_MS if told["flawed"] else 0)
        try:
            made = self.release(told["charge"], told["run"], ask.actor)
        finally:
            self.clock.now = clock
        command: Any = c.parse(made.raw, len(made.raw))
        return self.command(ask.actor, ask.kind, command["body"], ask.id, CleanRoom(told["by"]).signer)

    _run_generation = _key_release

    def _step_lease(self, ask: Ask, now: int) -> Submission:
        del now
        body: c.Object = {name: ask.told[name] for name in ("charge", "first", "generation", "last")}
        return self.command(ask.actor, ask.kind, {**body, "state": "ab" * 32}, ask.id, CleanRoom(ask.told["by"]).signer)

    def _model_opening(self, ask: Ask, now: int) -> Submission:
        told, room, clock = ask.told, CleanRoom(ask.told["room"]), self.clock.now
        self.clock.now = now - (DAY_MS if told["flawed"] else 0)
        try:
            evidence = self.evidence(told["charge"], room, told["run"])
        finally:
            self.clock.now = clock
        body: c.Object = {
            "charge": told["charge"],
            "clean_room": room.to_json(),
            "evidence": evidence,
            "model": "ab" * 32,
            "nonce": NONCE,
        }
        return self.command(ask.actor, ask.kind, body, ask.id)

    def _transfer(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told
        body: c.Object = {name: told[name] for name in ("charge", "giver", "recipient") if told[name] is not None}
        if told["agreed"] is not None:
            signer, giver, runs = told["agreed"]
            body["agreement"] = self.agreement(told["charge"], giver, told["recipient"], runs, self.signer(signer))
        return self.command(ask.actor, ask.kind, body, ask.id)


_FIELDS: Final[dict[str, dict[str, str]]] = {
    "retirement": {"ref": "partition"},
    "post": {},
    "void": {},
    "model_release": {},
    "release_notice": {},
    "revocation": {"digest": "contract"},
    "merger": {"into": "organisation"},
    "acquisition": {"into": "organisation", "parents": "acquired"},
    "split": {"parent": "organisation"},
    "publication": {},
    "coalition": {},
    "collusion": {"dids": "organisations", "since": "effective"},
}


def digest_of(bank: str, version: int) -> str:
    """A contract's digest."""
    return c.digest(c.dump(_contract(bank, version)))


def contract_of(bank: str, version: int) -> Contract:
    """A contract as the model has it."""
    return Contract(contract_id(bank), version, bank, NOW, NOW + 90 * DAY_MS, RUNS_MAX)


@cache
def priced() -> tuple[dict[tuple[str, str], Vector | None], dict[str, dict[str, Vector]]]:
    """What a step costs and how much fits: as the entries of one book record it, but for a budget with δ = 0."""
    costs: dict[tuple[str, str], Vector | None] = {}
    caps: dict[str, dict[str, Vector]] = {}
    with TemporaryDirectory() as folder, open_modelled_world(Path(folder)) as world, world.book.read() as facts:
        entries = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
        for kind in KINDS:
            opened: Any = next(one.body for one in entries if one.id == f"partition-{kind}")
            caps[kind] = {cap["epsilon"]: tuple(cap["capacity"]) for cap in opened["caps"]}
        for name in PLANS:
            for kind in KINDS:
                told: dict[str, Any] = {"partitions": (ref_of(kind),), "contract": digest_of(BANK_A, 1)}
                (made,) = world.submit(world.charge(f"{name}-{kind}", run=plan_of(name, 1), **told))
                body: Any = made.body
                costs[name, kind] = (
                    tuple(body["prices"][ref_of(kind)][0]["price"]) if made.code.word == "pending" else None
                )
    costs["pure", "pure"] = (Fraction(1, 16),)
    costs["loud", "renyi"] = costs["poisson", "renyi"]
    return costs, caps


def open_modelled_world(folder: Path) -> Any:  # noqa: ANN401 - a context
    """A world whose book is open while the block runs."""
    return open_world(folder, make=ModelledWorld)


def model_of() -> Model:
    """The model of a founded world."""
    costs, caps = priced()
    model = Model(costs, LINEAGE, SRO, frozenset({"loud"}))
    for place, (did, role) in enumerate(ROLES.items()):
        model.register(did, role, place, NOW)
    for kind, epsilon in KINDS.items():
        _apply(model, "partition", HOSPITAL, ref=ref_of(kind), kind=kind, epsilon=epsilon, caps=caps[kind])
    for bank in BANKS:
        _apply(model, "contract", bank, digest=digest_of(bank, 1), contract=contract_of(bank, 1))
    model.datasets, model.effective = {"digits"}, NOW // 1000 * 1000
    model.size, model.last = len(ROLES) + 2 + len(KINDS) + len(BANKS), NOW
    return model


def _apply(model: Model, requested: str, actor: str, /, **told: Any) -> None:  # noqa: ANN401 - whatever the kind needs
    word, change = getattr(model, f"_{requested}")(Ask(requested, "", actor, told), NOW, **told)
    assert word == "permitted"
    change(model.size)
