"""Users as privacy units: drawn whole, clipped as one, and with no more records than was said beforehand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.neighbours import contributions
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.poisson_sampler import microbatches
from trainer_adapter.dpsgd.privacy_units import of_users

RECORDS = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 2), 10, 4)
PLAN = structs.replace(RECORDS, unit="user")
USERS = torch.tensor([7, -3, 7, 7, 12, -3, 7, 40, 12])


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn((9, 2, 5), generator=generator), torch.arange(9) % 3


def _model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.GroupNorm(1, 3), nn.Tanh(), nn.Linear(4, 2), nn.Flatten(), nn.Linear(6, 3)
    )


def _alone(model: nn.Module, records: list[int]) -> Tensor:
    """The sum of the gradients of some records, by an ordinary backward pass for each."""
    inputs, targets = _data()
    total = torch.zeros(sum(value.numel() for value in model.parameters()), dtype=torch.float64)
    for record in records:
        loss = cross_entropy(model(inputs[record : record + 1]), targets[record : record + 1])
        total += torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    return total


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 6))
def test_a_users_first_records_are_kept(users: list[int], most: int) -> None:
    """Each user once, each with their first records and no more of them, in the partition's order."""
    units = of_users(torch.tensor(users), len(users), most)
    expected = [[place for place, user in enumerate(users) if user == one][:most] for one in sorted(set(users))]
    found = [places[valid].tolist() for places, valid in zip(*units, strict=True)]
    assert found == expected


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=40), st.integers(-3, 3), st.integers(1, 6))
def test_a_user_who_leaves_changes_nobody_elses_records(users: list[int], leaver: int, most: int) -> None:
    """What trains of one user depends on that user's records alone."""
    numbers = list(range(len(users)))
    left = [place for place in numbers if users[place] != leaver]
    with_all, without = (
        {users[kept[0]]: kept for places, valid in zip(*units, strict=True)
         if (kept := [within[place] for place in places[valid].tolist()])}
        for units, within in (
            (of_users(torch.tensor(users), len(users), most), numbers),
            (of_users(torch.tensor([users[place] for place in left], dtype=torch.int64), len(left), most), left),
        )
    )  # fmt: skip
    with_all.pop(leaver, None)
    assert with_all == without


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_user_adds_the_clipped_sum_of_their_records(precision: str) -> None:
    """Clipped once, as a whole; users with fewer records than the bound have no dummies counted."""
    model = _model()
    engine = Engine(PLAN, model, cross_entropy, _data(), 3, precision=precision, users=USERS, records_per_user_max=3)
    found = contributions(engine, np.arange(4))
    lengths = []
    for row, records in zip(found, [[1, 5], [0, 2, 3], [4, 8], [7]], strict=True):
        expected = _alone(model, records)
        lengths.append(float(expected.norm()))
        assert torch.allclose(row, expected * min(1.0, engine.bound / lengths[-1]), atol=1e-5)
    assert max(lengths) > 0.5


def test_no_user_exceeds_the_clipping_norm_whatever_they_bring() -> None:
    """Many records of huge gradients, one not finite: a user adds at most C, exactly, or nothing."""
    inputs, targets = _data()
    inputs *= 1000
    inputs[4, 0, 0] = torch.inf
    data = (inputs, targets)
    engine = Engine(PLAN, _model(), cross_entropy, data, 4, users=USERS, records_per_user_max=4)
    found = contributions(engine, np.arange(4))
    for row in found:
        assert sum(Fraction(value) ** 2 for value in row.tolist()) <= PLAN.clipping_norm**2
    assert [bool(row.any()) for row in found] == [True, True, False, True]


def test_a_draw_is_of_users() -> None:
    """At probability 1 all four users are drawn, and their places are those of users."""
    plan = Plan(Fraction(1), Fraction(1), Fraction(1, 2), 10, 4, "user")
    engine = Engine(plan, _model(), cross_entropy, _data(), 4, users=USERS, records_per_user_max=2)
    assert engine.draw(1, CsprngRandomness(bytes(32))).tolist() == [0, 1, 2, 3]


def test_records_are_units_of_one_record_each() -> None:
    """Numbering every record as a user of its own is the same as no users at all."""
    model = _model()
    batches = list(microbatches(np.arange(9), 4))
    sums = [
        Engine(plan, model, cross_entropy, _data(), 4, users=users).clipped_sum(batches)
        for plan, users in ((RECORDS, None), (PLAN, torch.arange(9)))
    ]
    assert torch.equal(sums[0], sums[1])


@pytest.mark.parametrize(
    ("plan", "users", "most", "message"),
    [
        (PLAN, USERS[:5], 1, r"^users: must be one integer for each of 9 records"),
        (PLAN, USERS.to(torch.float32), 1, r"^users: must be one integer"),
        (PLAN, USERS, 0, r"^records_per_user_max: must lie between 1 and 1024"),
        (RECORDS, None, 2, r"^records_per_user_max: needs users"),
        (RECORDS, USERS, 2, r"^users: must be given where the plan's unit is the user, and only there: it is record"),
        (PLAN, None, 1, r"^users: must be given where the plan's unit is the user"),
    ],
)
def test_users_that_do_not_fit_are_refused(plan: Plan, users: Tensor | None, most: int, message: str) -> None:
    """Before anything runs, by name."""
    with pytest.raises(Malformed, match=message):
        Engine(plan, _model(), cross_entropy, _data(), users=users, records_per_user_max=most)
