"""An assignment: one run of one clean room, as far as the ledger is concerned; read from a TOML file.

    v = 1

    [train]
    id = "bank-a-run-1"
    service = "http://127.0.0.1:8000"
    issuer = "http://127.0.0.1:8100"
    log = "epsilon.example/ledger+8f2c1a90+AQ..."
    actor = "did:web:bank-a.example"
    key = "keys/bank-a.pem"
    contract = "<sha256>"
    deadline_s = 3600
    block_steps = 20
    output = "runs/bank-a-run-1"

    [train.attester]
    issuer = "https://attester.example"
    key = "keys/attester.pem"

    [train.data]
    "did:web:hospital.example/digits/2026-q1" = "data/2026-q1.sealed"

    [train.plan]
    batch_size_expected = 350
    ...

Paths are relative to the file. The charge also states, where the file does: ``base``, the charges of the models that
the run starts from; ``recipients``, to whom its model will go; ``unit_records_max``, the records of one privacy unit
after joins; and the SHA-256 of the file ``pipeline``, which the clean room's attestation names too. ``grants`` is the
folder where providers put the data keys that the service does not give: see :mod:`trainer_adapter.session.key_grants`.
With a table ``[train.resume]`` (``key``, a file of 32 bytes that its owner alone may read, and ``every_s``) a killed
run can go on: see :mod:`trainer_adapter.run.checkpointing`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ledger.domain.command import parse_ref
from ledger.log.verification import parse_log_key
from ledger.mechanisms.mechanism import GROUP_MAX
from ledger.mechanisms.plan import Plan
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import NO_PREPROCESSING, Preprocessing
from trainer_adapter.job.step_log import BLOCK_STEPS_MAX

ASSIGNMENT_BYTES_MAX: Final = 65_536
REQUIRED: Final = (
    "actor",
    "attester",
    "block_steps",
    "contract",
    "data",
    "deadline_s",
    "id",
    "issuer",
    "key",
    "log",
    "output",
    "plan",
    "service",
)
_STATED: Final = ("base", "recipients", "unit_records_max")
OPTIONAL: Final = ("grants", "pipeline", "preprocessing", "resume", *_STATED)
CHARGES_MAX: Final = 16
RECORDS_PER_UNIT_MAX: Final = 1_024
"""Records of one privacy unit that train."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resume:
    """How a killed run may go on: the file of the key that its state is sealed under, and how often it is saved."""

    key: Path
    every_s: int


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One run. ``data`` maps each partition to its file at rest; without ``resume`` a run dies with its process.

    ``stated`` is what the charge's body says as the file says it.
    """

    id: str
    service: str
    issuer: str
    log: LogKey
    actor: str
    key: Path
    contract: str
    deadline_s: int
    block_steps: int
    output: Path
    attester_issuer: str
    attester_key: Path
    data: tuple[tuple[str, Path], ...]
    plan: Plan
    grants: Path | None = None
    pipeline: Path | None = None
    preprocessing: Preprocessing = NO_PREPROCESSING
    resume: Resume | None = None
    stated: c.Object = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Assignment:
        """Read an assignment file. Raises: Malformed, naming the field; OSError."""
        return read_train(
            path, lambda value: Assignment(**assigned(c.fields(value, "", REQUIRED, OPTIONAL), path.parent))
        )


def read_train(path: Path, parse: Callable[[object], T]) -> T:
    """Read the table ``[train]`` of a TOML file. Raises: Malformed, naming the field; OSError."""
    with path.open("rb") as file:
        text = file.read(ASSIGNMENT_BYTES_MAX + 1)
    if len(text) > ASSIGNMENT_BYTES_MAX:
        raise Malformed(str(path), f"a job has at most {ASSIGNMENT_BYTES_MAX} bytes")
    try:
        whole = tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise Malformed(str(path), f"is not TOML: {fault}") from None
    except (RecursionError, ValueError):
        # What tomllib leaves to Python: brackets nested too deep, an integer of thousands of digits.
        raise Malformed(str(path), "is nested too deep or holds too long a number") from None
    c.integer(c.fields(whole, "", ("train", "v"))["v"], "v", 1, 1)
    try:
        return parse(whole["train"])
    except Malformed as fault:
        raise fault.under("train") from None


def assigned(known: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The members of an :class:`Assignment`, from a table that has them all. Raises: Malformed."""
    attester = c.fields(known["attester"], "attester", ("issuer", "key"))
    data = known["data"]
    if not isinstance(data, dict) or not data:
        raise Malformed("data", "must name the file of at least one partition")
    try:
        plan = Plan.parse(known["plan"])
    except Malformed as fault:
        raise fault.under("plan") from None
    return {
        "id": c.name(known["id"], "id"),
        "service": c.string(known["service"], "service"),
        "issuer": c.string(known["issuer"], "issuer"),
        "log": parse_log_key(c.string(known["log"], "log")),
        "actor": c.did(known["actor"], "actor"),
        "key": path_in(folder, known["key"], "key"),
        "contract": c.sha256(known["contract"], "contract"),
        "deadline_s": c.integer(known["deadline_s"], "deadline_s", 60, 30 * 86_400),
        "block_steps": c.integer(known["block_steps"], "block_steps", 1, BLOCK_STEPS_MAX),
        "output": path_in(folder, known["output"], "output"),
        "attester_issuer": c.string(attester["issuer"], "attester.issuer", 200),
        "attester_key": path_in(folder, attester["key"], "attester.key"),
        "data": tuple((parse_ref(ref, "data"), path_in(folder, file, f"data.{ref}")) for ref, file in data.items()),
        "grants": path_in(folder, known["grants"], "grants") if "grants" in known else None,
        "pipeline": path_in(folder, known["pipeline"], "pipeline") if "pipeline" in known else None,
        "plan": plan,
        "preprocessing": Preprocessing.parse(known.get("preprocessing", []), folder),
        "resume": _resume(known["resume"], folder) if "resume" in known else None,
        "stated": _stated(known),
    }


def path_in(folder: Path, value: object, field: str) -> Path:
    """A path relative to a folder. Raises: Malformed."""
    text = c.string(value, field)
    if "\0" in text:
        raise Malformed(field, "is no path: it holds a null character")
    return folder / text


def _stated(known: dict[str, Any]) -> c.Object:
    if "unit_records_max" in known:
        c.integer(known["unit_records_max"], "unit_records_max", 1, GROUP_MAX)
    for name, read in (("base", c.name), ("recipients", c.did)):
        for place, one in enumerate(c.strings(known[name], name, CHARGES_MAX) if name in known else ()):
            read(one, f"{name}[{place}]")
    return {name: known[name] for name in _STATED if name in known}


def _resume(value: object, folder: Path) -> Resume:
    known = c.fields(value, "resume", ("every_s", "key"))
    return Resume(path_in(folder, known["key"], "resume.key"), c.integer(known["every_s"], "resume.every_s", 0, 86_400))
