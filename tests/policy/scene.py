"""A scene as plain data, changed by path; from it the facts and the request of one decision are built.

decide("charge", {"policies|0|run|epsilon_max": "1.9"})    # everything else as in the scene that permits
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from ledger.commands.registry import read_body
from ledger.crypto.detached_jws import public_key
from ledger.crypto.public_keys import PublicKey
from ledger.domain.command import LEDGER_ACTOR, Command
from ledger.domain.facts import (
    Account,
    Charge,
    Contract,
    Dataset,
    Organisation,
    Partition,
    PolicyVersion,
    StepLeases,
    StreamVersion,
    holder_of,
)
from ledger.domain.gate import Request, Verdict
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import Arrow, Node, NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import parse_time
from policy.decisions.gate import gate
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from tests.factories.documents import NONCE, contract, dataset, plan, policy, recommendation, stream
from tests.factories.people import (
    ATTESTER,
    BANK_A,
    BANK_B,
    CLINIC,
    HOSPITAL,
    MERGED,
    SRO,
    TSO,
    CleanRoom,
    private_key,
)

GONE: Final = object()
"""As a value in a change: take the field away."""
TDP, OTHER_TDP = HOSPITAL, CLINIC
MODEL: Final = "ab" * 32
TDC, OTHER_TDC = BANK_A, BANK_B
NOW = "2026-06-01T00:00:00Z"
NOW_S: Final = parse_time(NOW, "now") // 1000


def sealing(room: str) -> PublicKey:
    """The public sealing key of the clean room of this name."""
    return PublicKey("X25519", c.base64url(CleanRoom(room).sealing.public_key().public_bytes_raw()))


ATTESTER_KEY, ROOM_KEY, OTHER_KEY = (private_key(name) for name in ("attester", "room run-1", "other"))
ROOM, ROOM_SEALING = public_key(ROOM_KEY), sealing("run-1")
PLAN: Final[dict[str, Any]] = {**plan(120, "2.25", "16/175")}
POLICY: Final[dict[str, Any]] = policy(
    parse_time("2026-01-01T00:00:00Z", "effective"),
    ATTESTER_KEY,
    lineage={"epsilon_max": "6"},
    records_min=500,
    run={"epsilon_max": "2.5"},
)
DATASET: Final[dict[str, Any]] = dataset()
CONTRACT: Final[dict[str, Any]] = contract(
    TDC,
    starts=parse_time("2026-02-01T00:00:00Z", "starts"),
    ends="2026-12-01T00:00:00Z",
    run={"epsilon_max": "2.4"},
    runs_max=3,
)
RECOMMENDATION: Final[dict[str, Any]] = recommendation(
    "digits-2026", budget={"delta_max": "0.00001", "epsilon_max": "5"}
)
STREAM: Final[dict[str, Any]] = stream()
PARTITION: Final[dict[str, Any]] = {
    "name": "2026-q1",
    "provider": TDP,
    "dataset": "digits",
    "epsilon": "7",
    "opened": "2026-05-01T00:00:00Z",
    "retired": False,
    "index": 20,
    "run": "2",
}
SCENE: Final[dict[str, Any]] = {
    "now": NOW,
    "organisations": {
        SRO: ["SRO"],
        TDP: ["TDP"],
        OTHER_TDP: ["TDP"],
        TDC: ["TDC"],
        OTHER_TDC: ["TDC"],
        MERGED: ["TDC"],
        TSO: ["TSO"],
    },
    "policies": [POLICY],
    "policy_indexes": [10, 30, 40, 50],
    "dataset": DATASET,
    "recommendation": None,
    "commitments": {},
    "persons": {},
    "streams": [],
    "stream_indexes": [15, 25, 35],
    "coalitions": [],
    "contracts": [CONTRACT],
    "runs": 2,
    "revoked": False,
    "partitions": [PARTITION],
    "charge": {"state": "pending", "deadline": "2026-06-01T01:00:00Z", "notices": {MODEL: "2026-05-31T00:00:00Z"}},
    "header": {"alg": "Ed25519", "typ": "eat+jwt"},
    "claims": {
        "iss": ATTESTER,
        "iat": NOW_S,
        "exp": NOW_S + 600,
        "eat_nonce": NONCE,
        "dbgstat": "disabled-since-boot",
        "swname": "trainer",
        "charge": "run-1",
        "plan": Plan.parse(PLAN).digest,
        "cnf": {"signing": ROOM.to_json(), "sealing": ROOM_SEALING.to_json()},
    },
}
REF = f"{TDP}/digits/2026-q1"
ORGANISATION_BODY: Final[dict[str, Any]] = {
    "organisation": "did:web:new.example",
    "name": "New",
    "roles": ["TDC"],
    "key": public_key(OTHER_KEY).to_json(),
    "possession": "signature",
}
OPENING: Final[dict[str, Any]] = {
    "provider": TDP,
    "dataset": "digits",
    "partition": "2026-q2",
    "epsilon": "7",
    "delta": "0.00001",
    "relation": "REPLACE_SPECIAL",
    "unit": "record",
    "records": 800,
    "rule": "renyi",
    "data_key": "k1",
}
ROOM_BODY: Final[dict[str, Any]] = {"signing": ROOM.to_json(), "sealing": ROOM_SEALING.to_json()}
_DIGEST = "0" * 64
ASKED: Final[dict[str, dict[str, Any]]] = {
    "organisation": {"actor": SRO, "body": ORGANISATION_BODY},
    "policy": {"actor": SRO, "signers": [SRO], "entered": {**POLICY, "version": 2, "effective": NOW}},
    "dataset": {"actor": TDP, "signers": [TDP], "entered": {**DATASET, "id": "letters"}},
    "contract": {"actor": TDC, "signers": [TDP, TDC], "entered": {**CONTRACT, "id": "new"}},
    "partition": {"actor": TDP, "body": OPENING},
    "retirement": {"actor": TDP, "body": {"partition": REF}},
    "charge": {
        "actor": TDC,
        "body": {"partitions": [REF], "plan": PLAN, "clean_room": ROOM_BODY, "deadline": 1, "contract": ""},
    },
    "key_release": {"actor": TDC, "body": {"charge": "run-1", "evidence": "", "nonce": NONCE}},
    "run_generation": {"actor": TDC, "body": {"charge": "run-1", "evidence": "", "nonce": NONCE}},
    "step_lease": {
        "actor": TDC,
        "body": {"charge": "run-1", "first": 1, "generation": 1, "last": 10, "state": MODEL},
    },
    "post": {"actor": TDC, "body": {"charge": "run-1", "steps": 3}},
    "void": {"actor": TDC, "body": {"charge": "run-1"}},
    "lapse": {"actor": TDC, "body": {"charge": "run-1"}},
    "statement": {"actor": LEDGER_ACTOR, "body": {"root": "0" * 64, "size": 1}},
    "model_release": {"actor": TDC, "body": {"charge": "run-1", "model": MODEL}},
    "stream": {"actor": TDP, "signers": [TDP], "entered": STREAM},
    "recommendation": {"actor": TSO, "signers": [TSO], "entered": RECOMMENDATION},
    "revocation": {"actor": TDP, "body": {"contract": ""}},
    "decree": {"actor": SRO, "body": {"holder": "global", "partition": REF, "reason": "an error"}},
    "key_rotation": {
        "actor": TDC,
        "body": {"key": ORGANISATION_BODY["key"], "possession": "a..b", "retires": "A" * 43, "until": 1},
    },
    "key_revocation": {"actor": TDC, "body": {"keys": ["A" * 43], "reason": "a theft"}},
    "key_suspension": {"actor": TDC, "body": {"keys": ["A" * 43], "reason": "a doubt", "suspended": True}},
    "recovery_quorum": {"actor": SRO, "body": {"members": [TDP], "threshold": 1}},
    "key_recovery": {
        "actor": TDP,
        "body": {"key": ORGANISATION_BODY["key"], "organisation": SRO, "possession": "a..b", "reason": "a loss"},
    },
    "clock_correction": {
        "actor": SRO,
        "body": {"ahead": 2, "reason": "the clock was set to 2036", "signatures": ["a..b"], "time": 1},
    },
    "release_notice": {"actor": TDC, "body": {"charge": "run-1", "model": MODEL}},
    "model_opening": {
        "actor": TDC,
        "charge": {"state": "posted", "deadline": "2026-05-01T01:00:00Z", "notices": {}},
        "body": {"charge": "run-1", "clean_room": ROOM_BODY, "evidence": "", "model": MODEL, "nonce": NONCE},
    },
    "merger": {"actor": SRO, "body": {"organisation": MERGED, "parents": [TDC, OTHER_TDC]}},
    "acquisition": {"actor": SRO, "body": {"organisation": TDC, "acquired": [OTHER_TDC]}},
    "collusion": {"actor": SRO, "body": {"organisations": [TDC, OTHER_TDC], "effective": 0}},
    "split": {"actor": SRO, "body": {"organisation": TDC, "child": OTHER_TDC}},
    "transfer": {"actor": SRO, "body": {"charge": "run-1", "recipient": OTHER_TDC}},
    "publication": {"actor": SRO, "body": {"charge": "run-1"}},
    "coalition": {"actor": SRO, "body": {"members": [TDC, OTHER_TDC], "epsilon": "3"}},
}


@dataclass
class World(MemoryState):
    """Facts held in dictionaries, with commitments to records by name."""

    committed: dict[str, str] = field(default_factory=dict)

    def store(self, data: bytes) -> str:
        """Keep bytes under their digest."""
        digest = c.digest(data)
        self.documents = {**self.documents, digest: data}
        return digest


def changed(value: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with each path set, taken away (GONE), or appended (an index one past the end)."""
    value = copy.deepcopy(value)
    for path, new in change.items():
        *way, last = path.split("|")
        place: Any = value
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list):
            place[int(last) :] = [new, *place[int(last) + 1 :]]
        elif new is GONE:
            del place[last]
        else:
            place[last] = new
    return value


def token(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    """A compact JWS over header and claims as given, however wrong."""
    parts = (c.base64url(c.dump(dict(header))), c.base64url(c.dump(dict(claims))))
    signed = ".".join(parts).encode()
    return signed + b"." + c.base64url(sign(signed)).encode()


def decide(kind: str, change: Mapping[str, Any] | None = None) -> Verdict:
    """The gate's verdict on a command of this kind in the changed scene."""
    scene = changed({**SCENE, "signers": [], "body": {}, **ASKED[kind]}, change or {})
    return gate(*build(kind, scene))


def build(kind: str, scene: dict[str, Any]) -> tuple[Request, World]:
    """Request and facts of a scene."""
    world, now = World(), parse_time(scene["now"], "now")
    _people(world, scene)
    _documents(world, scene)
    _money(world, scene)
    body = scene["body"]
    if "entered" in scene:
        body = {"document": world.store(c.dump(scene["entered"])), "signatures": [_DIGEST]}
    defaults = {"contract": next(iter(world.contracts), _DIGEST), "evidence": _evidence(world, scene)}
    body = {name: defaults.get(name, value) if value == "" else value for name, value in body.items()}
    if "commitments" in body:
        body["commitments"] = [world.committed.get(name, name) for name in body["commitments"]]
    signer = scene["actor"], scene.get("key_id", ROOM.thumbprint)
    body_read = read_body(Command(kind, "client-made", *signer, body))
    command = Command(scene.get("as", kind), "client-made", *signer, body)
    asked = body.get("partitions", [])
    told = zip(asked, [item["run"] for item in scene["partitions"]], strict=False)
    runs = tuple((ref, Fraction(run)) for ref, run in told if run is not None)
    return Request(command, body_read, now, tuple(scene["signers"]), runs), world


def _evidence(world: World, scene: dict[str, Any]) -> str:
    return world.store(token(scene["header"], scene["claims"], ATTESTER_KEY.sign))


def commitments(key: str, *records: str, magic: bytes = MAGIC) -> bytes:
    """Commitments to records by a key; both are words here, hashed as a provider would not."""
    named = hashlib.sha256(key.encode()).digest()
    made = (hashlib.sha256(f"{key}/{one}".encode()).digest() for one in records)
    return magic + named + b"".join(sorted(made))


def _named(records: list[Any]) -> list[str]:
    """The key and the records; a number stands for so many records."""
    return [name for one in records for name in ([f"r{n}" for n in range(one)] if isinstance(one, int) else [one])]


def _declared(world: World, index: int, members: list[str], epsilon: str) -> None:
    arrows = tuple(Arrow(node) for node in sorted({world.organisations[did].node for did in members}))
    cap = Fraction(epsilon)
    world.nodes[index] = Node(index, 0, NodeKind.COALITION, SRO, arrows, members=tuple(members), epsilon=cap)
    for arrow in arrows:
        node = world.nodes[arrow.node]
        world.nodes[arrow.node] = replace(node, children=(*node.children, Arrow(index)))


def _people(world: World, scene: dict[str, Any]) -> None:
    for node, (did, roles) in enumerate(scene["organisations"].items()):
        world.organisations[did] = Organisation(did, did, tuple(roles), node, ((0, node),), node)
        world.nodes[node] = Node(node, 0, NodeKind.ORGANISATION, did, members=(did,))
    # MERGED has TDC among its ancestors, two steps away.
    at = {did: organisation.node for did, organisation in world.organisations.items()}
    world.nodes[100] = Node(100, 0, NodeKind.ORGANISATION, TDC, (Arrow(at[TDC]),), (Arrow(at[MERGED]),))
    world.nodes[at[MERGED]] = Node(at[MERGED], 0, NodeKind.ORGANISATION, MERGED, (Arrow(100),), members=(MERGED,))


def _documents(world: World, scene: dict[str, Any]) -> None:
    for document, index in zip(scene["policies"], scene["policy_indexes"], strict=False):
        domain, effective = document["domain"], parse_time(document["effective"], "effective")
        digest = world.store(c.dump(document))
        version = PolicyVersion(domain, document["version"], digest, document["issuer"], effective, index)
        world.policies[domain] = (*world.policies.get(domain, ()), version)
    dataset = scene["dataset"]
    provider, name, domain = dataset["provider"], dataset["id"], dataset["domain"]
    digest = world.store(c.dump(dataset))
    advised = scene["recommendation"]
    advice = world.store(c.dump(advised)) if advised else None
    world.datasets[provider, name] = Dataset(provider, name, domain, digest, 11, advice)
    for document, index in zip(scene["streams"], scene["stream_indexes"], strict=False):
        stated = StreamVersion(TDP, document["dataset"], document["version"], world.store(c.dump(document)), index)
        world.streams[TDP, document["dataset"]] = (*world.streams.get((TDP, document["dataset"]), ()), stated)
    for document in scene["contracts"]:
        digest = world.store(c.dump(document))
        dates = parse_time(document["starts"], "starts"), parse_time(document["ends"], "ends")
        consumer, parties = document["tdc"], tuple(document["tdps"])
        node = world.organisations[consumer].node
        entered = (
            document["id"],
            document["version"],
            consumer,
            node,
            parties,
            *dates,
            scene["runs"],
            12,
            scene["revoked"],
        )
        world.contracts[digest] = Contract(digest, *entered)
        world.contract_heads[document["id"]] = digest


def _money(world: World, scene: dict[str, Any]) -> None:
    for name, records in scene["commitments"].items():
        world.committed[name] = world.store(commitments(*_named(records)))
    for name, persons in scene["persons"].items():
        world.committed[name] = world.store(commitments(*persons, magic=PERSONS_MAGIC))
    for place, one in enumerate(scene["coalitions"], start=200):
        _declared(world, place, one["members"], one["epsilon"])
    for item in scene["partitions"]:
        ref = f"{item['provider']}/{item['dataset']}/{item['name']}"
        world.partitions[ref] = Partition(
            ref=ref,
            provider=item["provider"],
            dataset=item["dataset"],
            epsilon=Fraction(item["epsilon"]),
            delta=Fraction(item.get("delta", "0.00001")),
            relation="REPLACE_SPECIAL",
            unit="record",
            unit_records_max=1,
            records=800,
            data_key="k1",
            terms=item.get("terms", "{}"),
            opened=parse_time(item["opened"], "opened"),
            retired=item["retired"],
            index=item["index"],
            commitments=tuple(world.committed[name] for name in item.get("commitments", ())),
        )
    for ref, price in scene["charge"].get("prices", {}).items():
        pending = loss_of((Segment(120, (price,)),), 120)
        world.accounts[ref, holder_of(3)] = Account(ref, holder_of(3), Loss.zero(1), pending)
    world.charges["run-1"] = Charge(
        id="run-1",
        contract=next(iter(world.contracts)),
        actor=TDC,
        author=3,
        partitions=tuple(world.partitions),
        plan=Plan.parse(PLAN).digest,
        steps=120,
        steps_posted=None,
        state=ChargeState(scene["charge"]["state"]),
        key_id=ROOM.thumbprint,
        sealing=ROOM_SEALING.x,
        key_release=None,
        deadline=parse_time(scene["charge"]["deadline"], "deadline"),
        prices=tuple((ref, (Segment(120, (price,)),)) for ref, price in scene["charge"].get("prices", {}).items()),
        recipients=(),
        base=(),
        index=60,
        notices=tuple((model, parse_time(at, "at")) for model, at in scene["charge"]["notices"].items()),
        pipeline=scene["charge"].get("pipeline"),
        leases=StepLeases(steps=scene["charge"]["leased"]) if "leased" in scene["charge"] else None,
    )
