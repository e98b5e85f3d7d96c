"""Commands: what organisations and clean rooms ask for, as it is signed and sent.

    {"actor":"did:web:bank-a.example","body":{...},"id":"run-1","key_id":"8kPT...","kind":"charge","v":1}

The signed bytes are the RFC 8785 form of the whole command, and the HTTP body is those bytes.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Final, Literal

from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import CleanRoomKeys, PublicKey, check_key
from ledger.domain import governance_commands, lineage_commands
from ledger.domain.governance_commands import REASON_MAX, GoverningBody
from ledger.domain.lineage_commands import LineageBody
from ledger.mechanisms.mechanism import GROUP_MAX, STEPS_MAX, Relation
from ledger.mechanisms.plan import RunPlan
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire import canonical_json as c
from ledger.wire.field_types import (
    Did,
    KeyBytes,
    Name,
    Ref,
    Sha256,
    Time,
    between,
    constant,
    distinct,
    text,
    words,
)
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert, read, write

COMMAND_BYTES_MAX: Final = 32_768
"""Half of what an entry may hold; the other half is left for what was decided."""
RUNS_MAX: Final = 16
"""Recipients that a charge names, and runs that it starts from."""
COMMITMENTS_MAX: Final = 32
"""Documents of record commitments that one partition names, each of up to 8,190 records."""
ROLES: Final = ("SRO", "TSO", "TDP", "TDC", "AUDITOR")
UNITS: Final = ("record", "user")
RULES: Final = RULE_NAMES
Role = Annotated[str, words(*ROLES)]
UnitRecords = Annotated[int, between(1, GROUP_MAX)]
"""Records of one privacy unit."""


class OrganisationClaim(Record, frozen=True):
    """What the possession signature of a registration covers."""

    organisation: Did
    name: Annotated[str, text(200)]
    roles: Annotated[tuple[Role, ...], distinct(len(ROLES))]
    key: SignerKey


class RegisterOrganisation(Record, frozen=True):
    """A legal body with its roles and first signing key; ``possession`` is that key's own signature."""

    organisation: Did
    name: Annotated[str, text(200)]
    roles: Annotated[tuple[Role, ...], distinct(len(ROLES))]
    key: SignerKey
    possession: Annotated[str, text(1_000)]

    def __post_init__(self) -> None:
        """An organisation signs with no key for sealing, and with none that anyone could use. Raises: Malformed."""
        super().__post_init__()
        if isinstance(self.key, PublicKey):
            check_key(self.key, "Ed25519", "key")

    def claim(self) -> bytes:
        """The bytes ``possession`` signs."""
        return write(OrganisationClaim(self.organisation, self.name, self.roles, self.key))


class EnterDocument(Record, frozen=True):
    """A policy, recommendation, dataset or contract: its digest and the digests of the signatures over it."""

    document: Sha256
    signatures: Annotated[tuple[Sha256, ...], distinct(32)]


class OpenPartition(Record, frozen=True):
    """A slice of a dataset with a budget (ε, δ) of its own.

    Attributes:
        records: a public lower bound on how many there are.
        unit_records_max: how many records one privacy unit holds at most; absent where the unit is the record.
        slack: the part of δ kept for black boxes.
        load: the plan that the partition is expected to be charged with.
        commitments: digests of the stored commitments to its records.
        reason: why the budget is above the recommended one.
    """

    provider: Did
    dataset: Name
    partition: Name
    epsilon: Fraction
    delta: Fraction
    relation: Relation
    unit: Annotated[str, words(*UNITS)]
    records: Annotated[int, between(1, 10**12)]
    rule: Annotated[str, words(*RULES)]
    data_key: Name
    unit_records_max: UnitRecords | None = None
    slack: Fraction | None = None
    load: RunPlan | None = None
    commitments: Annotated[tuple[Sha256, ...], distinct(COMMITMENTS_MAX)] = ()
    reason: Annotated[str, text(REASON_MAX)] | None = None

    def __post_init__(self) -> None:
        """Only a unit of several records says how many. Raises: Malformed."""
        super().__post_init__()
        if self.unit == "record" and self.unit_records_max is not None:
            raise Malformed("unit_records_max", "is for a unit that holds several records, not for 'record'")
        if self.unit != "record" and self.unit_records_max is None:
            raise Malformed("unit_records_max", "is missing: how many records does one unit hold at most?")

    @property
    def unit_records(self) -> int:
        """How many records one privacy unit holds at most."""
        return self.unit_records_max or 1

    @property
    def ref(self) -> str:
        """``provider/dataset/partition``."""
        return f"{self.provider}/{self.dataset}/{self.partition}"


class Retire(Record, frozen=True):
    """A partition takes nothing new; what is pending settles."""

    partition: Ref


class MakeCharge(Record, frozen=True):
    """One run's loss laid on all its partitions or on none, for one clean room known by its two keys.

    Attributes:
        recipients: to whom the model will be handed over, fixed before anything runs.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run, where it is said; its attestation must say the same.
        unit_records_max: how many records one privacy unit has at most in what is trained on, after joins, where more
            than in the partition.
    """

    contract: Sha256
    partitions: Annotated[tuple[Ref, ...], distinct(16)]
    plan: RunPlan
    clean_room: CleanRoomKeys
    deadline: Time
    recipients: Annotated[tuple[Did, ...], distinct(RUNS_MAX)] = ()
    base: Annotated[tuple[Name, ...], distinct(RUNS_MAX)] = ()
    pipeline: Sha256 | None = None
    unit_records_max: UnitRecords | None = None


class ReleaseKey(Record, frozen=True):
    """The data keys of a charge's partitions for the attested clean room; ``nonce`` answers a challenge."""

    charge: Name
    evidence: Sha256
    nonce: KeyBytes


class Post(Record, frozen=True):
    """Settle for the steps that ran (begun steps count), zero included."""

    charge: Name
    steps: Annotated[int, between(0, STEPS_MAX)]


class Settle(Record, frozen=True):
    """Settle without a count: void by a party, or lapse by the book itself after the deadline."""

    charge: Name


class ReleaseModel(Record, frozen=True):
    """Let the trained model, known by its digest, leave the clean room; ``watermark`` is its record's digest."""

    charge: Name
    model: Sha256
    watermark: Sha256 | None = None


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
BODIES: Final[dict[str, type[Body]]] = {
    "organisation": RegisterOrganisation,
    "policy": EnterDocument,
    "dataset": EnterDocument,
    "partition": OpenPartition,
    "retirement": Retire,
    "contract": EnterDocument,
    "charge": MakeCharge,
    "key_release": ReleaseKey,
    "post": Post,
    "void": Settle,
    "lapse": Settle,
    "model_release": ReleaseModel,
    "recommendation": EnterDocument,
    **governance_commands.BODIES,
    **lineage_commands.BODIES,
}
"""By kind of command."""
KINDS: Final = tuple(BODIES)


Kind = Annotated[str, words(*KINDS)]


class Command(Record, frozen=True):
    """One command: who asks (``actor``, by the key ``key_id``) for what, under an id the client made."""

    kind: Kind
    id: Name
    actor: Did
    key_id: KeyBytes
    body: dict[str, Any]
    v: Literal[1] = constant(1)

    @classmethod
    def parse(cls, data: bytes) -> Command:
        """Read canonical bytes, the body too (:func:`read_body`). Raises: Malformed."""
        command = read(Command, data, COMMAND_BYTES_MAX)
        read_body(command)
        return command

    def to_bytes(self) -> bytes:
        """The canonical bytes, as they are signed."""
        return write(self)


def read_body(command: Command) -> Body:
    """The typed body of a command. Raises: Malformed, with the field under ``body``."""
    return read_request(command.kind, command.body)


def read_request(kind: str, body: c.Object) -> Body:
    """The same, of the body by itself."""
    return convert(BODIES[kind], body, "body")


def parse_ref(value: object, field: str) -> str:
    """A partition reference, ``provider/dataset/partition``. Raises: Malformed."""
    return convert(Ref, value, field)
