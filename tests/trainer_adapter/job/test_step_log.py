"""The step log counts at least every step whose noise was used, whatever happened to the process."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
from contextlib import closing
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.step_log import StepLog, steps_begun

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import os, signal, sys
from pathlib import Path
from fractions import Fraction
import numpy, torch
from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import Stream
from tests.trainer_adapter.local_training import train
from trainer_adapter.job.step_log import StepLog

def killed_at(last):
    used, pieces = 0, Stream.pieces
    def counted(stream, count):
        nonlocal used
        used += 1
        os.write(1, b"n")
        if used == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return pieces(stream, count)
    return counted

torch.set_num_threads(1)
plan = Plan(Fraction(1, 4), Fraction(2), Fraction(1), 100000, 10)
model = torch.nn.Linear(2, 2)
data = torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)
for path, last in zip(sys.argv[1::2], sys.argv[2::2]):
    child = os.fork()
    if not child:
        os.dup2(os.open(path + ".noise", os.O_WRONLY | os.O_CREAT), 1)
        Stream.pieces = killed_at(int(last))
        log = StepLog.create(Path(path), "run-1", plan, 7)
        train(plan, model, torch.nn.functional.cross_entropy, data, torch.optim.SGD(model.parameters(), lr=0.1), log)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


def test_a_killed_run_has_begun_what_it_used(tmp_path: Path) -> None:
    """Real runs, killed by SIGKILL at their n-th noise: the log counts n, to the end of the block of 7."""
    plan = Plan(Fraction(1, 4), Fraction(2), Fraction(1), 100_000, 10)
    kills = {tmp_path / f"steps-{at}": at for at in (15, random.Random(2).randrange(20, 60))}  # noqa: S311 - seeded
    command = [sys.executable, "-c", CHILD, *(str(word) for pair in kills.items() for word in pair)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(int(signal.SIGKILL))] * len(kills)
    for path, kill_at in kills.items():
        assert path.with_name(f"{path.name}.noise").read_bytes() == b"n" * kill_at
        assert steps_begun(path, "run-1", plan) == -(-kill_at // 7) * 7


def test_blocks_count_in_full_as_soon_as_they_begin(tmp_path: Path, plan: Plan) -> None:
    """Before, during and after: 0, then whole blocks, and the file says the same while it is still open."""
    path = tmp_path / "steps"
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        assert (log.steps_begun(), steps_begun(path, "run-1", plan)) == (0, 0)
        for last, first in ((5, 1), (8, 6), (12, 9)):
            log.begin(first, last)
            assert (log.steps_begun(), steps_begun(path, "run-1", plan)) == (last, last)
    assert path.read_bytes().splitlines()[1:] == [
        b'{"first":1,"last":5}',
        b'{"first":6,"last":8}',
        b'{"first":9,"last":12}',
    ]


def test_a_block_and_the_logs_name_are_on_the_disk_when_the_call_returns(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create ends with an fsync of file and folder, begin with one of the whole file."""
    path, synced, fsync = tmp_path / "steps", [], os.fsync

    def tell(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, path.stat().st_size))

    monkeypatch.setattr(os, "fsync", tell)
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        assert [place for place, _ in synced] == [path.stat().st_ino, tmp_path.stat().st_ino]
        log.begin(1, 5)
        assert synced[2:] == [(path.stat().st_ino, path.stat().st_size)]
        assert path.read_bytes().endswith(b'{"first":1,"last":5}\n')


@pytest.mark.parametrize("block", [(2, 3), (0, 3), (1, 0), (1, 6), (1, 13), (True, 2)])
def test_a_block_that_does_not_follow_is_refused(tmp_path: Path, plan: Plan, block: tuple[int, int]) -> None:
    """Gaps, repetitions, blocks too long and blocks beyond the plan write nothing."""
    path = tmp_path / "steps"
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        before = path.read_bytes()
        with pytest.raises(Malformed):
            log.begin(*block)
        assert path.read_bytes() == before
        assert log.steps_begun() == 0


def test_a_log_is_never_used_twice(tmp_path: Path, plan: Plan) -> None:
    """A second run on the same file is refused, even with the same id and plan."""
    StepLog.create(tmp_path / "steps", "run-1", plan, 5).close()
    with pytest.raises(FileExistsError):
        StepLog.create(tmp_path / "steps", "run-1", plan, 5)


def test_a_closed_log_begins_nothing(tmp_path: Path, plan: Plan) -> None:
    """After close no block can begin."""
    log = StepLog.create(tmp_path / "steps", "run-1", plan, 5)
    log.close()
    with pytest.raises(OSError, match="step log"):
        log.begin(1, 5)


def test_every_cut_of_the_last_line_overstates(tmp_path: Path, plan: Plan) -> None:
    """Cut anywhere in its last line, the log counts that block in full, never less."""
    path = tmp_path / "steps"
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        log.begin(1, 5)
        log.begin(6, 8)
    whole = path.read_bytes()
    second = whole.index(b'{"first":6')
    for cut in range(second, len(whole) + 1):
        path.write_bytes(whole[:cut])
        expected = 5 if cut == second else 8 if cut >= len(whole) - 1 else 10
        assert steps_begun(path, "run-1", plan) == expected


def test_a_torn_block_never_counts_beyond_the_plan(tmp_path: Path, plan: Plan) -> None:
    """A torn last block ends where the plan ends."""
    path = tmp_path / "steps"
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        log.begin(1, 5)
        log.begin(6, 10)
    path.write_bytes(path.read_bytes() + bytes(12))
    assert steps_begun(path, "run-1", plan) == plan.steps


def test_another_runs_log_is_refused(tmp_path: Path, plan: Plan) -> None:
    """Another run's id, or another plan by one step, is named."""
    path = tmp_path / "steps"
    StepLog.create(path, "run-1", plan, 5).close()
    with pytest.raises(Malformed, match=r"^run: "):
        steps_begun(path, "run-2", plan)
    with pytest.raises(Malformed, match=r"^plan: "):
        steps_begun(path, "run-1", structs.replace(plan, steps=13))


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [b"", *lines],
        lambda lines: [lines[0][:-3], *lines[1:]],
        lambda lines: [lines[0], b"?", *lines[1:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[0], lines[1], *lines[1:]],
        lambda lines: [json.dumps({**json.loads(lines[0]), "v": True}).encode(), *lines[1:]],
        lambda lines: [json.dumps({**json.loads(lines[0]), "more": 1}).encode(), *lines[1:]],
    ],
)
def test_damage_before_the_last_line_is_refused(tmp_path: Path, plan: Plan, damage: object) -> None:
    """No count is made up from a log that was damaged by more than a cut."""
    path = tmp_path / "steps"
    with closing(StepLog.create(path, "run-1", plan, 5)) as log:
        log.begin(1, 5)
        log.begin(6, 10)
    assert callable(damage)
    path.write_bytes(b"\n".join(damage(path.read_bytes().split(b"\n"))))
    with pytest.raises(Malformed):
        steps_begun(path, "run-1", plan)


def test_a_disk_that_takes_no_more_stops_the_run(tmp_path: Path, plan: Plan) -> None:
    """With the file at its size limit begin fails, the block still counts, and no other block can begin."""
    code = """
import resource, signal, sys
from fractions import Fraction
from pathlib import Path
from ledger.mechanisms.plan import Plan
from trainer_adapter.job.step_log import StepLog
plan = Plan(Fraction(1, 4), Fraction(2), Fraction(1, 2), 12, 10)
log = StepLog.create(Path(sys.argv[1]), "run-1", plan, 5)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
for first, last in ((1, 5), (6, 10)):
    try:
        log.begin(first, last)
    except OSError:
        print(log.steps_begun())
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    StepLog.create(tmp_path / "size", "run-1", plan, 5).close()
    room = (tmp_path / "size").stat().st_size + 4
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "steps"), str(room)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["5", "5"]
    assert steps_begun(tmp_path / "steps", "run-1", plan) == 5
