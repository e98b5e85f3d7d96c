"""Users with more records than a run over records is charged for: what is beyond is left out, or the run ends."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from api.demo import digits
from client.service.charged_stages import charged_stages
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.run.charged_run import Run
from trainer_adapter.session.noise_choice import load_job
from trainer_adapter.training.attach import attach
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import read_records

CHEAP = structs.replace(PLAN, noise_multiplier=Fraction(40))
CHARGED = 2
"""Records of one user that the partition states at most."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A partition whose unit is the user, of whom some have more records than it states."""
    with open_place(tmp_path_factory.mktemp("users") / "place", unit="user") as found:
        yield found


def _put(place: Place, users: NDArray[np.int64] | None) -> None:
    inputs, targets = read_records(digits.archive(digits.FIRST), "digits")
    named = {} if users is None else {"users": users}
    place.put(inputs=inputs.numpy(), targets=targets.numpy(), **named)


def _mixed() -> NDArray[np.int64]:
    """Users of one to seven records, in no order."""
    records = len(read_records(digits.archive(digits.FIRST), "digits")[1])
    return np.random.default_rng(1).permutation(np.arange(records) * 7919 % (records // 4))


def _first(users: NDArray[np.int64], most: int) -> list[int]:
    """The places of the first records of each user, counted one by one."""
    seen = dict[int, int]()
    places = list[int]()
    for place, user in enumerate(users.tolist()):
        seen[user] = seen.get(user, 0) + 1
        if seen[user] <= most:
            places.append(place)
    return places


@pytest.mark.parametrize(
    ("stated", "counted"), [("", CHARGED), ("unit_records_max = 1\n", CHARGED), ("unit_records_max = 3\n", 3)]
)
def test_the_first_records_of_each_user_train(place: Place, stated: str, counted: int) -> None:
    """As many as the charge is for: what the partition states, or the job if that is more."""
    users = _mixed()
    _put(place, users)
    job = place.assignment_file(f"first-{stated[-2:].strip() or 'no'}", CHEAP)
    job.write_text(job.read_text().replace("[train]\n", f"[train]\n{stated}", 1))
    model = torch.nn.Linear(64, digits.CLASSES)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimiser, cross_entropy, job, Options(service=place.service)) as run:
        next(iter(run))
        engine = run._engine  # noqa: SLF001 - which records it may draw from shows nowhere else
    assert isinstance(engine, Engine)
    present = engine._units._present  # noqa: SLF001 - as above
    assert present is not None
    assert torch.nonzero(present).flatten().tolist() == _first(users, counted)


def test_another_loop_s_run_ends(place: Place) -> None:
    """It cannot leave records out, so it counts as begun and names no user."""
    _put(place, _mixed())
    with (
        pytest.raises(Malformed, match="has more than 2 records of one user, which the run is charged for") as error,
        Run(place.assignment("other-loop", CHEAP), place.service) as run,
    ):
        run.open_data()
    assert error.value.field == place.ref
    charge = place.charge("other-loop")
    assert charge is not None
    # The whole of its first block.
    assert charge.steps_posted == 10


@pytest.mark.parametrize("users", [None, np.arange(10_000)], ids=["not named", "one record each"])
def test_another_loop_gets_what_the_charge_is_for(place: Place, users: NDArray[np.int64] | None) -> None:
    """Records that name no users are as their provider says."""
    records = len(read_records(digits.archive(digits.FIRST), "digits")[1])
    _put(place, None if users is None else users[:records])
    with Run(place.assignment(f"bounded-{users is None}", CHEAP), place.service) as run:
        assert list(run.open_data()) == [place.ref]
        assert run.begin().next_step() == 1


def test_records_are_units_where_the_partition_says_so(tmp_path: Path) -> None:
    """Then a user's number bounds nothing."""
    with open_place(tmp_path / "place") as of_records:
        _put(of_records, _mixed())
        with Run(of_records.assignment("of-records", CHEAP), of_records.service) as run:
            assert list(run.open_data()) == [of_records.ref]


@pytest.mark.parametrize("stated", [None, 2, 3])
def test_the_noise_of_a_stated_epsilon_is_for_what_is_charged(place: Place, stated: int | None) -> None:
    """The partition's number of records, where the job states fewer: the charge costs what the job states at most."""
    path = place.job(f"noise-{stated}")
    head = (
        path.read_text()
        .split("[train.plan]")[0]
        .replace("[train]\n", f"[train]\nunit_records_max = {stated or 1}\n", 1)
    )
    path.write_text(
        f'{head}[train.privacy]\nepsilon = "0.5"\nbatch_size_expected = 350\nclipping_norm = "1"\nsteps = 20\n'
    )
    job = load_job(path)
    (line,) = Run(job, place.service).plan().lines
    assert line.epsilon is not None
    assert Fraction(49, 100) < line.epsilon <= Fraction(1, 2)


def test_stages_are_shown_for_what_is_charged(place: Place) -> None:
    """A model's one stage, the training, has the ε of the whole run."""
    _put(place, None)
    with Run(place.assignment("stages", CHEAP), place.service) as run:
        run.open_data()
        run.begin().next_step()
        (line,) = run.privacy.run_epsilon
    assert line.epsilon is not None
    (stage,) = cast("Any", charged_stages(place.service, "stages"))["stages"]
    (shown,) = stage["of"]
    assert shown["group"] == CHARGED
    assert float(parse_number(shown["epsilon"], "epsilon")) == pytest.approx(float(line.epsilon), rel=1e-6)
