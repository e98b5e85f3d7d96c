"""Which records count: where the unit is the record each one does, whatever users they name, in every kind of run."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from api.demo import digits
from api.demo.sealed_archive import sealed_archive
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire import canonical_json as c
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from tests.trainer_adapter.statistics import test_staged_run as stages
from tests.trainer_adapter.tuning import test_private_score as scores
from tests.trainer_adapter.tuning.test_tuning_run import FEW_TRIALS, ONE_MODEL
from trainer_adapter.cli.train import MICROBATCH, best_device, run_of
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.run.unit_bounds import unit_bounds
from trainer_adapter.statistics.staged_run import StagedRun
from trainer_adapter.statistics.statistics_run import StatisticsRun
from trainer_adapter.statistics.trial_score import HeldOutScore
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import counted_records, read_records
from trainer_adapter.tuning.tuning_run import Candidate, TuningRun

TAKEN: Final[list[c.Json]] = ["poisson_gaussian", "repeat_and_select", "pure", "zcdp"]
ASKED: Final = (
    '[train.plan]\nkind = "statistics"\nrelation = "REPLACE_SPECIAL"\nv = 1\n'
    '[[train.plan.statistics]]\nkind = "count"\nname = "rows"\nepsilon = "0.1"\n'
)
STATED: Final = "unit_records_max = 1\n"
"""What an adapted job of DEPA's says, too."""
A, B = "did:web:h.example/d/a", "did:web:h.example/d/b"
USERS: Final = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose partition has the record as its unit."""
    with open_place(tmp_path_factory.mktemp("counted") / "place", mechanisms=TAKEN) as found:
        yield found


def _archive(users: NDArray[np.int64]) -> bytes:
    file = io.BytesIO()
    np.savez(file, inputs=np.arange(float(len(users)))[:, None], targets=np.zeros(len(users), int), users=users)
    return file.getvalue()


def _present(opened: Mapping[str, bytes], bounds: Mapping[str, int]) -> list[bool]:
    present = counted_records(opened, bounds, read_records)
    records = sum(len(read_records(data, ref)[1]) for ref, data in opened.items())
    return [True] * records if present is None else [bool(one) for one in present]


@given(USERS, st.data())
def test_a_record_less_moves_no_other(place: Place, users: list[int], data: st.DataObject) -> None:
    """Where the unit is the record: all of them count, so none takes the place of one that is not there."""
    job = place.assignment("rule")
    stated = Assignment.load(_stated(place.assignment_file("rule")))
    gone = data.draw(st.integers(0, len(users) - 1))
    for assignment in (job, stated):
        whole, fewer = ({place.ref: _archive(np.array(one))} for one in (users, users[:gone] + users[gone + 1 :]))
        counted, left = (_present(one, unit_bounds(one, assignment, place.service)) for one in (whole, fewer))
        assert left == counted[:gone] + counted[gone + 1 :]
        assert all(counted)


@given(USERS, USERS, st.integers(1, 3), st.data())
def test_partitions_of_two_units_count_each_by_its_own(
    users: list[int], others: list[int], most: int, data: st.DataObject
) -> None:
    """A user less where that is the unit, and a record less where that is: neither moves another that counts."""
    leaver, gone = data.draw(st.sampled_from(users)), data.draw(st.integers(0, len(others) - 1))
    mine, yours = np.array(users), np.array(others)
    counted = np.array(_present({A: _archive(mine), B: _archive(yours)}, {A: most}))
    rest = np.delete(yours, gone)
    left = _present({A: _archive(mine[mine != leaver]), B: _archive(rest)}, {A: most})
    here, there = counted[: len(mine)], counted[len(mine) :]
    assert there.all()
    assert left == [*here[mine != leaver], *np.delete(there, gone)]
    assert all(here[mine == user].sum() == min(most, users.count(user)) for user in users)


def test_the_first_records_of_a_user_count_whoever_else_is_there() -> None:
    """Where the unit is the user: so that one user more or less changes no other's."""
    users = np.array([7, 7, 8, 7, 9, 8])
    assert np.flatnonzero(_present({A: _archive(users)}, {A: 2})).tolist() == [0, 1, 2, 4, 5]
    without = users[users != 8]
    assert np.flatnonzero(_present({A: _archive(without)}, {A: 2})).tolist() == [0, 1, 3]


def _stated(path: Path) -> Path:
    path.write_text(path.read_text().replace("[train]\n", f"[train]\n{STATED}", 1))
    return path


def _of_statistics(place: Place, name: str) -> list[Tensor]:
    path = _stated(place.assignment_file(name))
    path.write_text(path.read_text().split("[train.plan]")[0] + ASKED)
    with StatisticsRun(Assignment.load(path), place.service) as run:
        return [run.columns()._kept]  # noqa: SLF001 - which records count shows nowhere else


def _of_stages(place: Place, name: str) -> list[Tensor]:
    made = JobModel.make(Job.load(_stated(stages.written(place, name, stages.staged()))), best_device())
    run = run_of(made, Options(service=place.service, example=select(made.test, slice(2))))
    assert isinstance(run, StagedRun)
    with run:
        run.open()
        assert run._engine is not None  # noqa: SLF001 - as above
        present = run._engine._units._present  # noqa: SLF001 - as above
        assert present is not None
        return [present, run._measured]  # noqa: SLF001 - as above


def _of_trials(place: Place, name: str) -> list[Tensor]:
    made = JobModel.make(Job.load(_stated(scores.written(place, name, FEW_TRIALS, ONE_MODEL))), torch.device("cpu"))
    terms = TuningPlan.of(made.job.plan).score
    assert terms is not None
    judge = HeldOutScore(terms, made.job)
    options = Options(
        service=place.service, read=made.records, example=select(made.test, slice(2)), microbatch=MICROBATCH
    )
    default = Candidate(made.model, torch.optim.SGD(made.model.parameters(), lr=0.0), lambda _: 0.0)
    with TuningRun(made.job, lambda _: default, cross_entropy, options, judge=judge) as run:
        run.open()
        assert run._inputs is not None  # noqa: SLF001 - as above
        assert judge._columns is not None  # noqa: SLF001 - as above
        trains = run._inputs[3]  # noqa: SLF001 - as above
        assert trains is not None
        return [trains, judge._columns._kept]  # noqa: SLF001 - as above


KINDS: Final[dict[str, Callable[[Place, str], list[Tensor]]]] = {
    "statistics": _of_statistics,
    "stages": _of_stages,
    "trials": _of_trials,
}
"""What each kind of run has read: which records count, for each thing that they count in."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_run_leaves_out_a_record_that_is_a_unit(place: Place, kind: str) -> None:
    """Three records name one user, and the job states one: all count, and without the first so do the others."""
    inputs, targets = read_records(digits.archive(digits.FIRST), "digits")
    rows = {"inputs": inputs.numpy(), "targets": targets.numpy(), "users": np.arange(len(targets)) // 3}
    seen = list[list[Tensor]]()
    for name, first in (("whole", 0), ("fewer", 1)):
        file = io.BytesIO()
        np.savez(file, **{part: one[first:] for part, one in rows.items()})
        place.sealed.write_bytes(sealed_archive(file.getvalue(), place.data_key, place.ref, digits.CLASSES))
        seen.append(KINDS[kind](place, f"{kind}-{name}"))
    whole, fewer = seen
    assert bool(torch.stack(whole).sum(dim=0).eq(1).all())
    assert len(whole[0]) == len(targets) > PLAN.batch_size_expected
    assert all(torch.equal(one[1:], other) for one, other in zip(whole, fewer, strict=True))
