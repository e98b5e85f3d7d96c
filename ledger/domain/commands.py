"""Commands: what organisations and clean rooms ask for, as it is signed and sent.

    {"actor":"did:web:bank-a.example","body":{...},"id":"run-1","key_id":"8kPT...","kind":"charge","v":1}

The signed bytes are the RFC 8785 form of the whole command, and the HTTP body is those bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ledger.crypto.organisation_keys import SignerKey, parse_organisation_key
from ledger.crypto.public_keys import PublicKey
from ledger.domain import governance_commands, lineage_commands
from ledger.domain.governance_commands import REASON_MAX, GoverningBody
from ledger.domain.lineage_commands import LineageBody
from ledger.mechanisms.mechanism import GROUP_MAX, RELATIONS, STEPS_MAX
from ledger.mechanisms.plan import AnyPlan, parse_plan
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number, parse_number
from ledger.wire.malformed import Malformed

COMMAND_BYTES_MAX: Final = 32_768
"""Half of what an entry may hold; the other half is left for what was decided."""
TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
RUNS_MAX: Final = 16
"""Recipients that a charge names, and runs that it starts from."""
COMMITMENTS_MAX: Final = 32
"""Documents of record commitments that one partition names, each of up to 8,190 records."""
ROLES: Final = ("SRO", "TSO", "TDP", "TDC", "AUDITOR")
UNITS: Final = ("record", "user")
RULES: Final = RULE_NAMES
KINDS: Final = (
    "organisation",
    "policy",
    "dataset",
    "partition",
    "retirement",
    "contract",
    "charge",
    "key_release",
    "post",
    "void",
    "lapse",
    "model_release",
    "recommendation",
    *governance_commands.READERS,
    *lineage_commands.READERS,
)


@dataclass(frozen=True, slots=True)
class Command:
    """One command: who asks (``actor``, by the key ``key_id``) for what, under an id the client made."""

    kind: str
    id: str
    actor: str
    key_id: str
    body: c.Object

    @classmethod
    def parse(cls, data: bytes) -> Command:
        """Read canonical bytes. The body is read by :func:`read_body`. Raises: Malformed."""
        known = c.fields(c.parse_canonical(data, COMMAND_BYTES_MAX), "", ("actor", "body", "id", "key_id", "kind", "v"))
        c.integer(known["v"], "v", 1, 1)
        if not isinstance(known["body"], dict):
            raise Malformed("body", "must be an object")
        command = cls(
            kind=c.one_of(known["kind"], "kind", KINDS),
            id=c.name(known["id"], "id"),
            actor=c.did(known["actor"], "actor"),
            key_id=c.name_of_key(known["key_id"], "key_id"),
            body=known["body"],
        )
        read_body(command)
        return command

    def to_bytes(self) -> bytes:
        """The canonical bytes, as they are signed."""
        return c.dump(
            {
                "actor": self.actor,
                "body": self.body,
                "id": self.id,
                "key_id": self.key_id,
                "kind": self.kind,
                "v": 1,
            }
        )


@dataclass(frozen=True, slots=True)
class RegisterOrganisation:
    """A legal body with its roles and first signing key; ``possession`` is that key's own signature."""

    organisation: str
    name: str
    roles: tuple[str, ...]
    key: SignerKey
    possession: str

    def claim(self) -> bytes:
        """The bytes ``possession`` signs."""
        return c.dump(
            {
                "key": self.key.to_json(),
                "name": self.name,
                "organisation": self.organisation,
                "roles": list(self.roles),
            }
        )


@dataclass(frozen=True, slots=True)
class EnterDocument:
    """A policy, recommendation, dataset or contract: its digest and the digests of the signatures over it."""

    document: str
    signatures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenPartition:
    """A slice of a dataset with a budget (ε, δ) of its own.

    Attributes:
        records: a public lower bound on how many there are.
        unit_records_max: how many records one privacy unit holds at most; 1 where the unit is the record.
        slack: the part of δ kept for black boxes.
        load: the plan that the partition is expected to be charged with.
        commitments: digests of the stored commitments to its records.
        reason: why the budget is above the recommended one.
    """

    provider: str
    dataset: str
    partition: str
    epsilon: str
    delta: str
    relation: str
    unit: str
    records: int
    rule: str
    data_key: str
    unit_records_max: int
    slack: str
    load: AnyPlan | None
    commitments: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ref(self) -> str:
        """``provider/dataset/partition``."""
        return f"{self.provider}/{self.dataset}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Retire:
    """A partition takes nothing new; what is pending settles."""

    partition: str


@dataclass(frozen=True, slots=True)
class MakeCharge:
    """One run's loss laid on all its partitions or on none, for one clean room known by its two keys.

    Attributes:
        recipients: to whom the model will be handed over, fixed before anything runs.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run, where it is said; its attestation must say the same.
        unit_records_max: how many records one privacy unit has at most in what is trained on, after joins, where more
            than in the partition.
    """

    contract: str
    partitions: tuple[str, ...]
    plan: AnyPlan
    signing: PublicKey
    sealing: PublicKey
    deadline: int
    recipients: tuple[str, ...] = ()
    base: tuple[str, ...] = ()
    pipeline: str | None = None
    unit_records_max: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """The data keys of a charge's partitions for the attested clean room; ``nonce`` answers a challenge."""

    charge: str
    evidence: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Post:
    """Settle for the steps that ran (begun steps count), zero included."""

    charge: str
    steps: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle without a count: void by a party, or lapse by the book itself after the deadline."""

    charge: str


@dataclass(frozen=True, slots=True)
class ReleaseModel:
    """Let the trained model, known by its digest, leave the clean room; ``watermark`` is its record's digest."""

    charge: str
    model: str
    watermark: str | None = None


Body = (
    RegisterOrganisation
    | EnterDocument
    | OpenPartition
    | Retire
    | MakeCharge
    | ReleaseKey
    | Post
    | Settle
    | ReleaseModel
    | GoverningBody
    | LineageBody
)


def read_body(command: Command) -> Body:
    """The typed body of a command. Raises: Malformed, with the field under ``body``."""
    return read_request(command.kind, command.body)


def read_request(kind: str, body: c.Object) -> Body:
    """The same, of the body by itself."""
    try:
        return _READERS[kind](body)
    except Malformed as fault:
        raise fault.under("body") from None


def parse_ref(value: object, field: str) -> str:
    """A partition reference, ``provider/dataset/partition``. Raises: Malformed."""
    if not isinstance(value, str):
        raise Malformed(field, "must be 'provider/dataset/partition'")
    return _ref(value, field)


@lru_cache(maxsize=4_096)
def _ref(value: str, field: str) -> str:
    parts = value.split("/")
    if len(parts) != 3:
        raise Malformed(field, "must be 'provider/dataset/partition'")
    c.did(parts[0], field)
    c.name(parts[1], field)
    c.name(parts[2], field)
    return "/".join(parts)


def _organisation(body: c.Object) -> RegisterOrganisation:
    known = c.fields(body, "", ("key", "name", "organisation", "possession", "roles"))
    roles = c.strings(known["roles"], "roles", len(ROLES))
    for place, role in enumerate(roles):
        c.one_of(role, f"roles[{place}]", ROLES)
    return RegisterOrganisation(
        organisation=c.did(known["organisation"], "organisation"),
        name=c.string(known["name"], "name", 200),
        roles=roles,
        key=parse_organisation_key(known["key"], "key"),
        possession=c.string(known["possession"], "possession", 1000),
    )


def _document(body: c.Object) -> EnterDocument:
    known = c.fields(body, "", ("document", "signatures"))
    signatures = c.strings(known["signatures"], "signatures", 32)
    return EnterDocument(
        document=c.sha256(known["document"], "document"),
        signatures=tuple(c.sha256(item, f"signatures[{place}]") for place, item in enumerate(signatures)),
    )


def _partition(body: c.Object) -> OpenPartition:
    names = (
        "data_key",
        "dataset",
        "delta",
        "epsilon",
        "partition",
        "provider",
        "records",
        "relation",
        "rule",
        "unit",
    )
    known = c.fields(body, "", names, optional=("commitments", "load", "reason", "slack", "unit_records_max"))
    parse_number(known["epsilon"], "epsilon")
    parse_number(known["delta"], "delta")
    try:
        load = parse_plan(known["load"]) if "load" in known else None
    except Malformed as fault:
        raise fault.under("load") from None
    return OpenPartition(
        provider=c.did(known["provider"], "provider"),
        dataset=c.name(known["dataset"], "dataset"),
        partition=c.name(known["partition"], "partition"),
        epsilon=known["epsilon"],
        delta=known["delta"],
        relation=c.one_of(known["relation"], "relation", RELATIONS),
        unit=c.one_of(known["unit"], "unit", UNITS),
        records=c.integer(known["records"], "records", 1, 10**12),
        rule=c.one_of(known["rule"], "rule", RULES),
        data_key=c.name(known["data_key"], "data_key"),
        unit_records_max=_unit_records(known),
        slack=format_number(parse_number(known.get("slack", "0"), "slack")),
        load=load,
        commitments=_listed(known, "commitments", c.sha256, COMMITMENTS_MAX),
        reason=c.string(known["reason"], "reason", REASON_MAX) if "reason" in known else "",
    )


def _unit_records(known: c.Object) -> int:
    """Said for a unit of several records, and for no other."""
    if known["unit"] == "record":
        if "unit_records_max" in known:
            raise Malformed("unit_records_max", "is for a unit that holds several records, not for 'record'")
        return 1
    if "unit_records_max" not in known:
        raise Malformed("unit_records_max", "is missing: how many records does one unit hold at most?")
    return c.integer(known["unit_records_max"], "unit_records_max", 1, GROUP_MAX)


def _retire(body: c.Object) -> Retire:
    return Retire(parse_ref(c.fields(body, "", ("partition",))["partition"], "partition"))


def _charge(body: c.Object) -> MakeCharge:
    names, more = ("clean_room", "contract", "deadline", "partitions", "plan"), ("pipeline", "unit_records_max")
    known = c.fields(body, "", names, optional=("base", "recipients", *more))
    room = c.fields(known["clean_room"], "clean_room", ("sealing", "signing"))
    partitions = c.strings(known["partitions"], "partitions", 16)
    try:
        plan = parse_plan(known["plan"])
    except Malformed as fault:
        raise fault.under("plan") from None
    return MakeCharge(
        contract=c.sha256(known["contract"], "contract"),
        partitions=tuple(parse_ref(item, f"partitions[{place}]") for place, item in enumerate(partitions)),
        plan=plan,
        signing=PublicKey.parse(room["signing"], "clean_room.signing", "Ed25519"),
        sealing=PublicKey.parse(room["sealing"], "clean_room.sealing", "X25519"),
        deadline=c.integer(known["deadline"], "deadline", 0, TIME_MAX),
        recipients=_listed(known, "recipients", c.did),
        base=_listed(known, "base", c.name),
        pipeline=c.sha256(known["pipeline"], "pipeline") if "pipeline" in known else None,
        unit_records_max=_group(known),
    )


def _group(known: c.Object) -> int | None:
    if "unit_records_max" not in known:
        return None
    return c.integer(known["unit_records_max"], "unit_records_max", 1, GROUP_MAX)


def _listed(known: c.Object, field: str, read: Callable[[object, str], str], most: int = RUNS_MAX) -> tuple[str, ...]:
    """An optional list; present, it is not empty."""
    items = c.strings(known[field], field, most) if field in known else ()
    return tuple(read(item, f"{field}[{place}]") for place, item in enumerate(items))


def _key_release(body: c.Object) -> ReleaseKey:
    known = c.fields(body, "", ("charge", "evidence", "nonce"))
    return ReleaseKey(
        c.name(known["charge"], "charge"),
        c.sha256(known["evidence"], "evidence"),
        c.key_bytes(known["nonce"], "nonce"),
    )


def _post(body: c.Object) -> Post:
    known = c.fields(body, "", ("charge", "steps"))
    return Post(c.name(known["charge"], "charge"), c.integer(known["steps"], "steps", 0, STEPS_MAX))


def _settle(body: c.Object) -> Settle:
    return Settle(c.name(c.fields(body, "", ("charge",))["charge"], "charge"))


def _model_release(body: c.Object) -> ReleaseModel:
    known = c.fields(body, "", ("charge", "model"), optional=("watermark",))
    mark = c.sha256(known["watermark"], "watermark") if "watermark" in known else None
    return ReleaseModel(c.name(known["charge"], "charge"), c.sha256(known["model"], "model"), mark)


_READERS: Final[dict[str, Callable[[c.Object], Body]]] = {
    "organisation": _organisation,
    "policy": _document,
    "dataset": _document,
    "partition": _partition,
    "retirement": _retire,
    "contract": _document,
    "charge": _charge,
    "key_release": _key_release,
    "post": _post,
    "void": _settle,
    "lapse": _settle,
    "model_release": _model_release,
    "recommendation": _document,
    **governance_commands.READERS,
    **lineage_commands.READERS,
}
