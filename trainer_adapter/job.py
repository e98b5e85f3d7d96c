"""A job: what one training run in one clean room is given, read from a TOML file.

    v = 1

    [train]
    id = "bank-a-run-1"
    service = "http://127.0.0.1:8000"
    actor = "did:web:bank-a.example"
    key = "keys/bank-a.pem"
    contract = "<sha256>"
    deadline_s = 3600
    model = "digits-linear"
    learning_rate = "0.3"
    momentum = "0.9"
    block_steps = 20
    test = "data/test.npz"
    accuracy_target = "0.85"
    output = "runs/bank-a-run-1"

    [train.attester]
    issuer = "https://attester.example"
    key = "keys/attester.pem"

    [train.data]
    "did:web:hospital.example/digits/2026-q1" = "data/2026-q1.sealed"

    [train.plan]
    batch_size_expected = 350
    ...

Paths are relative to the file. ``accuracy_target`` may be left out; it is measured on public data only, so a run
that stops at it stops on what was released and may give its unexecuted steps back.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, Self

from ledger import canonical as c
from ledger.commands import parse_ref
from ledger.malformed import Malformed
from ledger.plan import Plan
from ledger.units import parse_number, parse_positive
from ledger.verifier import LogKey
from trainer_adapter.step_log import BLOCK_STEPS_MAX

JOB_BYTES_MAX: Final = 65_536
_NAMES: Final = (
    "actor",
    "attester",
    "block_steps",
    "contract",
    "data",
    "deadline_s",
    "id",
    "issuer",
    "key",
    "learning_rate",
    "log",
    "model",
    "momentum",
    "output",
    "plan",
    "service",
    "test",
)


@dataclass(frozen=True, slots=True)
class Job:
    """One run. ``data`` maps each partition to its file at rest."""

    id: str
    service: str
    issuer: str
    log: LogKey
    actor: str
    key: Path
    contract: str
    deadline_s: int
    model: str
    learning_rate: Fraction
    momentum: Fraction
    block_steps: int
    test: Path
    accuracy_target: Fraction | None
    output: Path
    attester_issuer: str
    attester_key: Path
    data: tuple[tuple[str, Path], ...]
    plan: Plan

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a job file. Raises: Malformed, naming the field; OSError."""
        with path.open("rb") as file:
            text = file.read(JOB_BYTES_MAX + 1)
        if len(text) > JOB_BYTES_MAX:
            raise Malformed(str(path), f"a job has at most {JOB_BYTES_MAX} bytes")
        try:
            whole = tomllib.loads(text.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
            raise Malformed(str(path), f"is not TOML: {fault}") from None
        except (RecursionError, ValueError):
            # What tomllib leaves to Python: brackets nested too deep, an integer of thousands of digits.
            raise Malformed(str(path), "is nested too deep or holds too long a number") from None
        c.integer(c.fields(whole, "", ("train", "v"))["v"], "v", 1, 1)
        try:
            return cls._parse(whole["train"], path.parent)
        except Malformed as fault:
            raise fault.under("train") from None

    @classmethod
    def _parse(cls, value: object, folder: Path) -> Self:
        known = c.fields(value, "", _NAMES, optional=("accuracy_target",))
        attester = c.fields(known["attester"], "attester", ("issuer", "key"))
        data = known["data"]
        if not isinstance(data, dict) or not data:
            raise Malformed("data", "must name the file of at least one partition")
        try:
            plan = Plan.parse(known["plan"])
        except Malformed as fault:
            raise fault.under("plan") from None
        target = parse_number(known["accuracy_target"], "accuracy_target") if "accuracy_target" in known else None
        return cls(
            id=c.name(known["id"], "id"),
            service=c.string(known["service"], "service"),
            issuer=c.string(known["issuer"], "issuer"),
            log=LogKey.parse(c.string(known["log"], "log")),
            actor=c.did(known["actor"], "actor"),
            key=_path(folder, known["key"], "key"),
            contract=c.sha256(known["contract"], "contract"),
            deadline_s=c.integer(known["deadline_s"], "deadline_s", 60, 30 * 86_400),
            model=c.string(known["model"], "model", 64),
            learning_rate=parse_positive(known["learning_rate"], "learning_rate"),
            momentum=parse_number(known["momentum"], "momentum"),
            block_steps=c.integer(known["block_steps"], "block_steps", 1, BLOCK_STEPS_MAX),
            test=_path(folder, known["test"], "test"),
            accuracy_target=target,
            output=_path(folder, known["output"], "output"),
            attester_issuer=c.string(attester["issuer"], "attester.issuer", 200),
            attester_key=_path(folder, attester["key"], "attester.key"),
            data=tuple((parse_ref(ref, "data"), _path(folder, file, f"data.{ref}")) for ref, file in data.items()),
            plan=plan,
        )


def _path(folder: Path, value: object, field: str) -> Path:
    text = c.string(value, field)
    if "\0" in text:
        raise Malformed(field, "is no path: it holds a null character")
    return folder / text
