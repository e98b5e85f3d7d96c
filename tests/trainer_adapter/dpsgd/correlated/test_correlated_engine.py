"""The engine of correlated noise: noise that the matrix undoes, groups that take turns, an audit of each strategy."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.audit_bound import epsilon_least
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.correlated.strategies import Banded, Buffered, Strategy
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.canary_coordinates import Coordinates
from trainer_adapter.dpsgd.correlated.correlated_engine import CorrelatedEngine
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.training.one_run_audit import flip, tally

SECRET = bytes(range(32))
MakeModel = Callable[[], nn.Module]
Data = tuple[Tensor, Tensor]


def plan_of(
    bands: int, rounds: int, probability: Fraction, noise: Fraction = Fraction(2), strategy: Strategy | None = None
) -> CorrelatedPlan:
    """Clipping norm 1/2, ten records expected."""
    return CorrelatedPlan(probability, bands, noise, Fraction(1, 2), rounds, 10, strategy=strategy)


def column(plan: CorrelatedPlan, rows: int) -> list[float]:
    """c_0 to c_(rows - 1) of the plan's matrix, as their definition has them."""
    matrix = plan.matrix
    if isinstance(matrix, Banded):
        return [1.0, *map(float, matrix.coefficients), *[0.0] * rows][:rows]
    assert isinstance(matrix, Buffered)
    pairs = [(float(one), float(two)) for one, two in zip(matrix.decays, matrix.scales, strict=True)]
    return [1.0, *(sum(scale * decay**row for decay, scale in pairs) for row in range(rows - 1))]


BANDED: Final = Banded((Fraction("0.7"), Fraction("0.1")))
BUFFERED: Final = Buffered((Fraction("0.9"), Fraction("0.2")), (Fraction("0.3"), Fraction("0.25")))


@pytest.mark.parametrize(("bands", "rounds", "strategy"), [(3, 2, None), (3, 2, BANDED), (6, 1, BUFFERED)])
def test_what_is_released_times_the_matrix_is_independent_noise(
    make_model: MakeModel, data: Data, bands: int, rounds: int, strategy: Strategy | None
) -> None:
    """Where no record enters: C times the gradients is the plan's noise, drawn step by step from the streams."""
    plan = plan_of(bands, rounds, Fraction(1, 10**9), strategy=strategy)
    model, known = make_model(), column(plan, 6)
    engine = CorrelatedEngine(plan, model, cross_entropy, data, 4)
    randomness, released = CsprngRandomness(SECRET), []
    for step in range(1, 7):
        engine.set_gradients(step, randomness)
        released.append(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]).numpy())
    again = CsprngRandomness(SECRET)
    norm = sum(one * one for one in known[:bands]) ** 0.5
    std = 2 * 0.5 * norm / plan.batch_size_expected
    for step in range(6):
        normals = again.stream("noise", step + 1).normals((engine.size,))
        product = sum(one * released[step - place] for place, one in enumerate(known[: step + 1]))
        assert np.allclose(product, std * normals, atol=1e-6)
    assert engine.noise_std == pytest.approx(norm, rel=1e-14)
    assert Fraction(engine.noise_std) >= plan.independent_noise


def test_a_stream_draws_every_record_once(make_model: MakeModel, data: Data) -> None:
    """As many groups as steps: each record enters one, whether or not each step has one."""
    engine = CorrelatedEngine(plan_of(60, 1, Fraction(1), strategy=BUFFERED), make_model(), cross_entropy, data, 4)
    randomness = CsprngRandomness(SECRET)
    drawn = [engine.draw(step, randomness).tolist() for step in range(1, 61)]
    assert sorted(place for step in drawn for place in step) == list(range(40))
    assert any(not step for step in drawn)


def test_groups_take_turns_and_hold_every_record_once(make_model: MakeModel, data: Data) -> None:
    """At probability 1 each round draws all records, each at its group's step, the same in every round."""
    engine = CorrelatedEngine(plan_of(4, 3, Fraction(1)), make_model(), cross_entropy, data, 4)
    randomness = CsprngRandomness(SECRET)
    rounds = [[engine.draw(4 * number + inner + 1, randomness).tolist() for inner in range(4)] for number in range(3)]
    assert rounds[0] == rounds[1] == rounds[2]
    assert sorted(place for drawn in rounds[0] for place in drawn) == list(range(40))
    assert all(rounds[0])


def test_records_of_one_owner_are_in_one_group(make_model: MakeModel, data: Data) -> None:
    """A group of DP-SGD's is the price of several records of one owner, which must enter the same steps for it."""
    owners = torch.arange(40) % 7 - 3
    engine = CorrelatedEngine(plan_of(4, 1, Fraction(1)), make_model(), cross_entropy, data, 4, owners=owners)
    randomness = CsprngRandomness(SECRET)
    drawn = [engine.draw(step, randomness) for step in range(1, 5)]
    assert sorted(np.concatenate(drawn).tolist()) == list(range(40))
    for owner in range(-3, 4):
        own = np.flatnonzero(owners.numpy() == owner)
        assert sum(bool(np.isin(own, places).any()) for places in drawn) == 1
    assert sum(bool(len(places)) for places in drawn) > 1
    with pytest.raises(Malformed, match="owners: must be one for each of 40 records"):
        CorrelatedEngine(plan_of(4, 1, Fraction(1)), make_model(), cross_entropy, data, 4, owners=owners[1:])


def test_a_round_is_as_many_updates_as_there_are_bands(make_model: MakeModel, data: Data) -> None:
    """Noise of later steps takes back what earlier ones added: their sum varies less than independent noise would."""
    plan, updates = plan_of(8, 4, Fraction(1, 10**9)), list[int]()
    model = make_model()
    engine = CorrelatedEngine(plan, model, cross_entropy, data, 4)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    optimiser.register_step_post_hook(lambda *_: updates.append(1))
    start = torch.cat([one.detach().flatten().clone() for one in model.parameters()])
    randomness = CsprngRandomness(SECRET)
    for step in range(1, 5):
        engine.step(step, optimiser, randomness)
    moved = torch.cat([one.detach().flatten() for one in model.parameters()]) - start
    assert len(updates) == 32
    independent = engine.noise_std / plan.batch_size_expected * 32**0.5
    assert float(moved.std()) < 0.6 * independent


CANARIES, GUESSES, DELTA = 10_000, 400, Fraction(1, 10**5)


def _audit(strategy: Strategy | None, part: float) -> Fraction:
    """One round of two steps; the auditor knows each canary's group, undoes the matrix, and looks at its rows."""
    plan = audited(strategy)
    included = flip(CsprngRandomness(SECRET[::-1]).stream("sampler", 1), CANARIES)
    model, data = Coordinates(CANARIES), (torch.arange(CANARIES), torch.full((CANARIES,), 10.0))
    present = torch.from_numpy(included)
    engine = CorrelatedEngine(plan, model, lambda out, target: -(out.squeeze(-1) * target), data, 256, present=present)
    engine.noise_std *= part
    seen, randomness = [], CsprngRandomness(SECRET)
    for step in (1, 2):
        engine.set_gradients(step, randomness)
        gradient = model.weights.weight.grad
        assert gradient is not None
        seen.append(-gradient[:, 0].to(torch.float64).numpy())
    # A canary of the first group is in both rows, by c_0 and c_1; one of the second in the last row alone.
    second = column(plan, 2)[1]
    rows = [seen[0], seen[1] + second * seen[0]]
    first = np.isin(np.arange(CANARIES), engine._groups[0])  # noqa: SLF001 - groups are no secret of the mechanism
    scores = np.where(first, (rows[0] + second * rows[1]) / np.hypot(1, second), rows[1])
    return epsilon_least(tally(scores, included, GUESSES), DELTA)


def audited(strategy: Strategy | None) -> CorrelatedPlan:
    """One round of two steps, every record in one of them."""
    return CorrelatedPlan(Fraction(1), 2, Fraction(2), Fraction(1), 1, 1, strategy=strategy)


@pytest.mark.parametrize("strategy", [None, Banded((Fraction("0.8"),)), BUFFERED], ids=["root", "banded", "buffered"])
def test_the_audit_passes_correlated_noise_and_catches_half_of_it(strategy: Strategy | None) -> None:
    """The plan's noise proves less than the ledger's ε, half of it more."""
    promised = reported_epsilon(audited(strategy).whole, DELTA, "ADD_OR_REMOVE_ONE")
    assert promised / 4 < _audit(strategy, 1.0) < promised
    assert _audit(strategy, 0.5) > promised
