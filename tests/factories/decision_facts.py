"""The facts and the request of one decision, built of a scene; and the verdict of the gate on them.

decide("charge", {"policies|0|run|epsilon_max": "1.9"})    # everything else as in the scene that permits
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from ledger.commands.registry import read_body
from ledger.domain.charge_record import Charge, StepLeases
from ledger.domain.command import Command
from ledger.domain.facts import (
    Account,
    Audit,
    Contract,
    Dataset,
    Organisation,
    Partition,
    PolicyVersion,
    StreamVersion,
    holder_of,
)
from ledger.domain.gate import Request, Verdict
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import Arrow, Node, NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import parse_time
from policy.decisions.gate import gate
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from tests.factories.decision_scene import ASKED, ATTESTER_KEY, PLAN, ROOM, ROOM_SEALING, SCENE
from tests.factories.path_changes import changed
from tests.factories.people import BANK_A, HOSPITAL, MERGED, SRO

_DIGEST: Final = "0" * 64


@dataclass
class SceneFacts(MemoryState):
    """Facts held in dictionaries, with commitments to records by name."""

    committed: dict[str, str] = field(default_factory=dict)

    def store(self, data: bytes) -> str:
        """Keep bytes under their digest."""
        digest = c.digest(data)
        self.documents = {**self.documents, digest: data}
        return digest


def token(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    """A compact JWS over header and claims as given, however wrong."""
    parts = (c.base64url(c.dump(dict(header))), c.base64url(c.dump(dict(claims))))
    signed = ".".join(parts).encode()
    return signed + b"." + c.base64url(sign(signed)).encode()


def decide(kind: str, change: Mapping[str, Any] | None = None) -> Verdict:
    """The gate's verdict on a command of this kind in the changed scene."""
    scene = changed({**SCENE, "signers": [], "body": {}, **ASKED[kind]}, change or {})
    return gate(*build(kind, scene))


def build(kind: str, scene: dict[str, Any]) -> tuple[Request, SceneFacts]:
    """Request and facts of a scene."""
    world, now = SceneFacts(), parse_time(scene["now"], "now")
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


def _evidence(world: SceneFacts, scene: dict[str, Any]) -> str:
    return world.store(token(scene["header"], scene["claims"], ATTESTER_KEY.sign))


def commitments(key: str, *records: str, magic: bytes = MAGIC) -> bytes:
    """Commitments to records by a key; both are words here, hashed as a provider would not."""
    named = hashlib.sha256(key.encode()).digest()
    made = (hashlib.sha256(f"{key}/{one}".encode()).digest() for one in records)
    return magic + named + b"".join(sorted(made))


def _named(records: list[Any]) -> list[str]:
    """The key and the records; a number stands for so many records."""
    return [name for one in records for name in ([f"r{n}" for n in range(one)] if isinstance(one, int) else [one])]


def _declared(world: SceneFacts, index: int, members: list[str], epsilon: str) -> None:
    arrows = tuple(Arrow(node) for node in sorted({world.organisations[did].node for did in members}))
    cap = Fraction(epsilon)
    world.nodes[index] = Node(index, 0, NodeKind.COALITION, SRO, arrows, members=tuple(members), epsilon=cap)
    for arrow in arrows:
        node = world.nodes[arrow.node]
        world.nodes[arrow.node] = replace(node, children=(*node.children, Arrow(index)))


def _people(world: SceneFacts, scene: dict[str, Any]) -> None:
    for node, (did, roles) in enumerate(scene["organisations"].items()):
        world.organisations[did] = Organisation(did, did, tuple(roles), node, ((0, node),), node)
        world.nodes[node] = Node(node, 0, NodeKind.ORGANISATION, did, members=(did,))
    # MERGED has TDC among its ancestors, two steps away.
    at = {did: organisation.node for did, organisation in world.organisations.items()}
    world.nodes[100] = Node(100, 0, NodeKind.ORGANISATION, BANK_A, (Arrow(at[BANK_A]),), (Arrow(at[MERGED]),))
    world.nodes[at[MERGED]] = Node(at[MERGED], 0, NodeKind.ORGANISATION, MERGED, (Arrow(100),), members=(MERGED,))


def _documents(world: SceneFacts, scene: dict[str, Any]) -> None:
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
        stated = StreamVersion(HOSPITAL, document["dataset"], document["version"], world.store(c.dump(document)), index)
        world.streams[HOSPITAL, document["dataset"]] = (*world.streams.get((HOSPITAL, document["dataset"]), ()), stated)
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


def _money(world: SceneFacts, scene: dict[str, Any]) -> None:
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
    for place, (pipeline, above) in enumerate(scene["audits"]):
        world.audits[f"audit-{place}"] = Audit(f"audit-{place}", pipeline, above, 70 + place)
    world.charges["run-1"] = Charge(
        id="run-1",
        contract=next(iter(world.contracts)),
        actor=BANK_A,
        author=3,
        partitions=tuple(world.partitions),
        plan=Plan.of(parse_plan(PLAN)).digest,
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
        groups=tuple(map(tuple, scene["charge"]["groups"])) if "groups" in scene["charge"] else None,
    )
