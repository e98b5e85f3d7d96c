"""The step log: a block of steps is durable here before the block's first noise is used.

One file for one run, one line of RFC 8785 JSON for each block; steps are counted from 1. The bytes:

    {"block_steps":10,"kind":"step_log","plan":"<sha256>","run":"run-1","steps":120,"v":1}
    {"first":1,"last":10}
    {"first":11,"last":20}

However the process ends, the steps whose noise was used are at most :func:`steps_begun`: a begun block
counts in full. A last line cut off by a crash counts too, as a whole block of ``block_steps``: its ``begin``
cannot have returned, so this overstates, on purpose. A run that goes on after its process died (:meth:`StepLog.resume`)
goes on after what it began.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from ledger.files.atomic_file import replace_file, sync_folder
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.canonical_json import Object, dump, fields, integer, parse
from ledger.wire.malformed import Malformed

LINE_MAX: Final = 1000
BLOCK_STEPS_MAX: Final = 100_000
_HEADER: Final = ("block_steps", "kind", "plan", "run", "steps", "v")


class StepLog:
    """The log of the run of this process; :func:`steps_begun` reads the log of any run."""

    def __init__(self, descriptor: int, plan: RunPlan, block_steps: int) -> None:
        """Use :meth:`create`."""
        self._descriptor = descriptor
        self._broken = False
        self._begun = 0
        self.plan_digest: Final = plan.digest
        self.steps: Final = plan.steps
        self.block_steps: Final = block_steps

    @classmethod
    def create(cls, path: Path, run: str, plan: RunPlan, block_steps: int) -> StepLog:
        """Make the log of a run, durable with its name in its folder before this returns.

        Args:
            path: where; nothing may be there yet.
            run: the id of the charge the run belongs to.
            plan: the plan that was charged.
            block_steps: the most steps of one block; about a second's work.

        Raises:
            FileExistsError: a log is never used for a second run.
            Malformed: for a block size out of bounds.
        """
        integer(block_steps, "block_steps", 1, BLOCK_STEPS_MAX)
        header = dump(_header(run, plan, block_steps))
        if len(header) > LINE_MAX:
            raise Malformed("run", "is too long for a step log")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        log = cls(descriptor, plan, block_steps)
        log._append(header)
        sync_folder(path.parent)
        return log

    @classmethod
    def resume(cls, path: Path, run: str, plan: RunPlan, block_steps: int) -> StepLog:
        """The log of a run whose process died, to go on after the last step that began.

        A last line that was cut off counts as the whole block it may have been, and is written out as such.

        Raises:
            Malformed: for the log of another run, plan or block size, or a damaged one. OSError.
        """
        begun = steps_begun(path, run, plan)
        whole, _, torn = path.read_bytes().rpartition(b"\n")
        head, *blocks = whole.split(b"\n")
        if _object(head, "step log, line 1", _HEADER)["block_steps"] != block_steps:
            raise Malformed("block_steps", "is another than the run began with")
        if torn:
            before = _object(blocks[-1], "step log", ("first", "last"))["last"] if blocks else 0
            blocks += [dump({"first": before + 1, "last": begun})] if begun > before else []
            replace_file(path, b"".join(line + b"\n" for line in (head, *blocks)))
        log = cls(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), plan, block_steps)
        log._begun = begun
        return log

    def begin(self, first: int, last: int) -> None:
        """Begin a block; when this returns, it counts in full for ever.

        Args:
            first: the step after the last one begun.
            last: at most ``block_steps`` steps further, and at most the plan's steps.

        Raises:
            Malformed: for a block that does not follow or is too long; nothing is written.
            OSError: if it cannot be made durable; it counts as begun, and no further block can begin.
        """
        if self._broken:
            raise OSError("the step log failed before: no further step may run")
        _follows(first, last, self._begun, self.block_steps, self.steps)
        # Before the write, so that a failure in the midst of it overstates.
        self._begun = last
        self._append(dump({"first": first, "last": last}))

    def begin_until(self, last: int) -> None:
        """Begin all steps up to one, block by block, where they have not begun. Raises: as :meth:`begin`."""
        while self._begun < last:
            self.begin(self._begun + 1, min(self._begun + self.block_steps, last))

    def steps_begun(self) -> int:
        """How many steps have begun, whole blocks; at least the steps whose noise was used."""
        return self._begun

    def close(self) -> None:
        """Let go of the file; what was begun stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._broken = -1, True

    def _append(self, line: bytes) -> None:
        rest = memoryview(line + b"\n")
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError:
            # After a failed fsync the kernel may have dropped the page and call the next one a success.
            self._broken = True
            raise


def steps_begun(path: Path, run: str, plan: RunPlan) -> int:
    """The steps that a run began, read from its log after it ended, however it ended.

    Raises:
        Malformed: for the log of another run or plan, or a damaged one. Then no number is sound; the
            charge's deadline posts it in full.
        OSError: if there is no log that can be read.
    """
    head, *lines = path.read_bytes().split(b"\n")
    header = _object(head, "step log, line 1", _HEADER)
    block_steps = integer(header["block_steps"], "block_steps", 1, BLOCK_STEPS_MAX)
    for name, ours in _header(run, plan, block_steps).items():
        if header[name] != ours or type(header[name]) is not type(ours):
            raise Malformed(name, "is another's: this step log belongs to another run or plan")
    begun = 0
    for place, line in enumerate(lines, start=1):
        if place == len(lines) and not line:
            break
        where = f"step log, line {place + 1}"
        try:
            block = _object(line, where, ("first", "last"))
            begun = _follows(block["first"], block["last"], begun, block_steps, plan.steps)
        except Malformed as error:
            if place < len(lines):
                raise error.under(where) if not error.field.startswith(where) else error from None
            begun = min(begun + block_steps, plan.steps)
    return begun


def _follows(first: object, last: object, begun: int, block_steps: int, steps: int) -> int:
    integer(first, "first", begun + 1, begun + 1)
    return integer(last, "last", begun + 1, min(begun + block_steps, steps))


def _object(line: bytes, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    return fields(parse(line, LINE_MAX, where), where, required=names)


def _header(run: str, plan: RunPlan, block_steps: int) -> Object:
    return {
        "block_steps": block_steps,
        "kind": "step_log",
        "plan": plan.digest,
        "run": run,
        "steps": plan.steps,
        "v": 1,
    }
