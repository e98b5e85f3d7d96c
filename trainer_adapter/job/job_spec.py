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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from ledger.domain.command import parse_ref
from ledger.log.verification import parse_log_key
from ledger.mechanisms.mechanism import GROUP_MAX
from ledger.mechanisms.plan import Plan
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import Constants, read_preprocessing
from trainer_adapter.job.step_log import BLOCK_STEPS_MAX

ASSIGNMENT_BYTES_MAX: Final = 65_536
CHARGES_MAX: Final = 16
RECORDS_PER_UNIT_MAX: Final = 1_024
"""Records of one privacy unit that train."""
T = TypeVar("T")
Reader: TypeAlias = Callable[[Any, str, Path], Any]
"""From a field's value, its name and the folder of the file to what is read. Raises: Malformed."""


@dataclass(frozen=True, slots=True)
class Attester:
    """The development attester that signs for the clean room: the name that a policy trusts, and its key's file."""

    issuer: str
    key: Path


@dataclass(frozen=True, slots=True)
class Resume:
    """How a killed run may go on: the file of the key that its state is sealed under, and how often it is saved."""

    key: Path
    every_s: int


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One run. ``data`` maps each partition to its file at rest; without ``resume`` a run dies with its process."""

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
    attester: Attester
    data: dict[str, Path]
    plan: Plan
    grants: Path | None = None
    pipeline: Path | None = None
    preprocessing: tuple[Constants, ...] = ()
    resume: Resume | None = None
    base: list[c.Json] | None = None
    recipients: list[c.Json] | None = None
    unit_records_max: int | None = None

    @property
    def stated(self) -> c.Object:
        """What the charge's body says as the file says it."""
        stated = {"base": self.base, "recipients": self.recipients, "unit_records_max": self.unit_records_max}
        return {name: value for name, value in stated.items() if value is not None}

    @classmethod
    def load(cls, path: Path) -> Assignment:
        """Read an assignment file. Raises: Malformed, naming the field; OSError."""
        return Assignment(**read_train(path, REQUIRED, OPTIONAL))


def read_train(path: Path, required: Mapping[str, Reader], optional: Mapping[str, Reader]) -> dict[str, Any]:
    """The fields of the table ``[train]`` of a TOML file. Raises: Malformed, naming the field; OSError."""
    with path.open("rb") as file:
        text = file.read(ASSIGNMENT_BYTES_MAX + 1)
    if len(text) > ASSIGNMENT_BYTES_MAX:
        raise Malformed(str(path), f"a job has at most {ASSIGNMENT_BYTES_MAX} bytes")
    try:
        whole = tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Malformed(str(path), f"is not TOML: {error}") from None
    except (RecursionError, ValueError):
        # What tomllib leaves to Python: brackets nested too deep, an integer of thousands of digits.
        raise Malformed(str(path), "is nested too deep or holds too long a number") from None
    c.integer(c.fields(whole, "", ("train", "v"))["v"], "v", 1, 1)
    try:
        known = c.fields(whole["train"], "", tuple(required), tuple(optional))
        readers = {**required, **optional}
        return {name: readers[name](value, name, path.parent) for name, value in known.items()}
    except Malformed as error:
        raise error.under("train") from None


def plain(read: Callable[..., T], *bounds: int) -> Reader:
    """A reader of a value that names no file."""
    return lambda value, field, _: read(value, field, *bounds)


def path_in(value: object, field: str, folder: Path) -> Path:
    """A path relative to a folder. Raises: Malformed."""
    text = c.string(value, field)
    if "\0" in text:
        raise Malformed(field, "is no path: it holds a null character")
    return folder / text


def _attester(value: object, field: str, folder: Path) -> Attester:
    known = c.fields(value, field, ("issuer", "key"))
    return Attester(c.string(known["issuer"], "attester.issuer", 200), path_in(known["key"], "attester.key", folder))


def _data(value: object, field: str, folder: Path) -> dict[str, Path]:
    if not isinstance(value, dict) or not value:
        raise Malformed(field, "must name the file of at least one partition")
    return {parse_ref(ref, field): path_in(file, f"{field}.{ref}", folder) for ref, file in value.items()}


def _plan(value: object, field: str) -> Plan:
    try:
        return Plan.parse(value)
    except Malformed as error:
        raise error.under(field) from None


def _resume(value: object, field: str, folder: Path) -> Resume:
    known = c.fields(value, field, ("every_s", "key"))
    return Resume(path_in(known["key"], "resume.key", folder), c.integer(known["every_s"], "resume.every_s", 0, 86_400))


def _several(read: Callable[[object, str], str]) -> Reader:
    def items(value: object, field: str, _: Path) -> list[str]:
        return [read(one, f"{field}[{place}]") for place, one in enumerate(c.strings(value, field, CHARGES_MAX))]

    return items


REQUIRED: Final[Mapping[str, Reader]] = {
    "actor": plain(c.did),
    "attester": _attester,
    "block_steps": plain(c.integer, 1, BLOCK_STEPS_MAX),
    "contract": plain(c.sha256),
    "data": _data,
    "deadline_s": plain(c.integer, 60, 30 * 86_400),
    "id": plain(c.name),
    "issuer": plain(c.string),
    "key": path_in,
    "log": plain(lambda value, field: parse_log_key(c.string(value, field))),
    "output": path_in,
    "plan": plain(_plan),
    "service": plain(c.string),
}
OPTIONAL: Final[Mapping[str, Reader]] = {
    "base": _several(c.name),
    "grants": path_in,
    "pipeline": path_in,
    "preprocessing": lambda value, _, folder: read_preprocessing(value, folder),
    "recipients": _several(c.did),
    "resume": _resume,
    "unit_records_max": plain(c.integer, 1, GROUP_MAX),
}
