"""Correlated noise over records of which one unit has several: a unit's enter the same steps, or nothing runs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from api.demo import digits
from ledger.domain.charge_record import Charge
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.dpsgd.correlated.correlated_engine import CorrelatedEngine
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.training.attach import attach
from trainer_adapter.training.correlated_run import CorrelatedRun
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import read_records

PLAN: Final = CorrelatedPlan(
    sampling_probability=Fraction(1, 2),
    bands=4,
    noise_multiplier=Fraction(40),
    clipping_norm=Fraction(1),
    rounds=2,
    batch_size_expected=80,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A partition whose unit is the user, who has two records at most."""
    with open_place(tmp_path_factory.mktemp("units") / "place", unit="user") as found:
        yield found


def _assignment(place: Place, name: str, **changed: Any) -> Assignment:  # noqa: ANN401 - its members
    return replace(place.assignment(name), plan=PLAN, **changed)


def _attached(place: Place, assignment: Assignment) -> CorrelatedRun:
    model = torch.nn.Linear(64, digits.CLASSES)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    run = attach(model, optimiser, cross_entropy, assignment, Options(service=place.service))
    assert isinstance(run, CorrelatedRun)
    return run


def _records() -> dict[str, Any]:
    inputs, targets = read_records(digits.archive(digits.FIRST), "digits")
    return {"inputs": inputs.numpy(), "targets": targets.numpy()}


def test_records_of_one_user_enter_the_same_steps(place: Place) -> None:
    """They are charged as a group of DP-SGD's is, whose records are drawn at one step."""
    held = _records()
    users = np.random.default_rng(3).permutation(np.arange(len(held["targets"])) // 2)
    place.put(**held, users=users)
    with _attached(place, _assignment(place, "users")) as run:
        next(iter(run))
        engine = run._engine  # noqa: SLF001 - which steps a record may enter shows nowhere else
    assert isinstance(engine, CorrelatedEngine)
    groups = np.zeros(len(users), int)
    for number, places in enumerate(engine._groups):  # noqa: SLF001 - as above
        groups[places] = number
    assert sorted(set(groups.tolist())) == [0, 1, 2, 3]
    assert all(len(set(groups[users == user])) == 1 for user in users.tolist())


def test_records_that_name_no_users_are_not_trained_on(place: Place) -> None:
    """Whose they are is not known, so those of one user could enter different steps. The charge is returned at once."""
    place.put(**_records())
    rule = "must name the user of each record, since those of one unit enter the same"
    charge = _charge_of_refused(place, "unnamed", rule)
    assert (charge.state, charge.steps_posted) == ("posted", 0)


def test_users_that_cannot_be_read_return_no_charge(place: Place) -> None:
    """One record may have made the whole array what it is, so the end shows something of it."""
    held = _records()
    users = np.arange(len(held["targets"])).astype(object)
    users[0] = None
    place.put(**held, users=users)
    assert _charge_of_refused(place, "unreadable", "is not a NumPy archive of users").steps_posted is None


def _charge_of_refused(place: Place, name: str, rule: str) -> Charge:
    """The charge of a run that is refused by a rule once its data is open."""
    with pytest.raises(Malformed, match=rule), _attached(place, _assignment(place, name)) as run:
        next(iter(run))
    charge = place.charge(name)
    assert charge is not None
    return charge


def test_rows_that_the_clean_room_did_not_join_are_refused_before_the_charge(tmp_path: Path) -> None:
    """Two rows of one record of another table's: which they are, no one says. One row each is as ever."""
    with open_place(tmp_path / "place") as of_records:
        with (
            pytest.raises(Malformed, match=r"unit_records_max: is for joins of the clean room: which rows of"),
            _attached(of_records, _assignment(of_records, "rows", unit_records_max=2)) as run,
        ):
            next(iter(run))
        assert of_records.charge("rows") is None
        with _attached(of_records, _assignment(of_records, "row", unit_records_max=1)) as run:
            assert next(iter(run)) == 1


def test_rows_of_one_person_in_a_join_have_one_owner(place: Place) -> None:
    """By the base's tokens, which the joined records keep."""
    tokens = np.random.default_rng(5).integers(0, 256, (3, 32), dtype=np.uint8)
    file = io.BytesIO()
    np.savez(file, inputs=np.zeros((5, 1)), targets=np.zeros(5), join=tokens[[2, 0, 2, 1, 0]])
    other = f"{place.ref}-other"
    data = {**place.assignment("joined").data, other: place.sealed}
    run = _attached(place, _assignment(place, "joined", data=data, join=(place.ref, other), unit_records_max=2))
    owners = run._find_owners({place.ref: file.getvalue()})  # noqa: SLF001 - as above
    assert owners is not None
    assert [owners.tolist().index(one) for one in owners.tolist()] == [0, 1, 0, 3, 1]
