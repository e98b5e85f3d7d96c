"""Canaries beside records: only their own weights see them, halved noise is found, the plan's noise is not accused."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.audit_bound import disproves
from ledger.commands.runs.audit_report import ACCUSATIONS, claim_of
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.bench.audit_table import DELTA, GUESSES, MODELS, PLANS, row
from tests.trainer_adapter.audit.canary_runs import LABELS, MakeModel, audited, multilayer
from trainer_adapter.audit.canaries import NAME, CanaryModel, RecordsAndCanaries, canary_loss, marked
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.training.named_losses import cross_entropy


def accused(make: MakeModel, noise_part: float) -> bool:
    """Whether one audit of the one step, with coins and noise of one seed, disproves what the plan claims."""
    plan, canaries = PLANS["one-step"]
    claim = claim_of(reported_epsilon(plan.whole, DELTA, "REPLACE_SPECIAL"))
    secrets = (CsprngRandomness(bytes([part]) * 32) for part in count(2))
    return disproves(audited(make, plan, canaries, GUESSES, noise_part, secrets.__next__), claim, DELTA)


@pytest.mark.parametrize("name", MODELS)
def test_one_step_s_audit_tells_halved_noise_from_the_plan_s(name: str) -> None:
    """Of each kind of model, once with half the noise and once with all of it, of one seed: chance may err once."""
    assert accused(MODELS[name], 0.5)
    assert not accused(MODELS[name], 1.0)


@pytest.mark.soak
@pytest.mark.parametrize("name", MODELS)
def test_halved_noise_is_found_by_ten_of_ten_and_frozen_by_the_fourth(name: str) -> None:
    """Sampled steps, fresh coins and seeds each time: the first four in a row freeze."""
    found = row(name, Fraction(1, 2), 10, "sampled")
    assert (found["above"], found["frozen_by_audit"]) == (10, ACCUSATIONS)


@pytest.mark.soak
@pytest.mark.parametrize("name", MODELS)
def test_the_plan_s_noise_is_not_frozen_in_forty(name: str) -> None:
    """Single bounds above the claim may be, one in twenty at most; four in a row are not."""
    assert row(name, Fraction(1), 40, "sampled")["frozen_by_audit"] is None


def test_a_canary_moves_its_own_weight_by_all_of_c_and_nothing_else() -> None:
    """The sum with one canary more differs at one coordinate; records' gradients are as without canaries."""
    torch.manual_seed(3)
    inner, inputs = multilayer()
    model, canaries, plan = CanaryModel(inner, 5), 5, Plan(Fraction(1), Fraction(2), Fraction(1, 4), 1, 8)
    records = RecordsAndCanaries((inputs, LABELS), canaries)
    loss = canary_loss(cross_entropy, 0.25)

    def summed(*which: int) -> Tensor:
        present = torch.tensor([True] * len(LABELS) + [place in which for place in range(canaries)])
        engine = Engine(plan, model, loss, records, 16, present=present)
        drawn = engine.draw(1, CsprngRandomness(bytes(32)))
        return engine.clipped_sum(engine.microbatches(drawn))

    plain = Engine(plan, inner, cross_entropy, (inputs, LABELS), 16)
    alone = plain.clipped_sum(plain.microbatches(plain.draw(1, CsprngRandomness(bytes(32)))))
    names = [name for name, _ in model.named_parameters()]
    sizes = [parameter.numel() for parameter in model.parameters()]
    start = sum(sizes[: names.index("weights.weight")])
    none, two = summed(), summed(1, 4)
    assert torch.equal(torch.cat((none[:start], none[start + 6 :])), alone)
    assert torch.equal(none[start : start + 6], torch.zeros(6, dtype=torch.float64))
    moved = two - none
    assert torch.nonzero(moved).flatten().tolist() == [start + 2, start + 5]
    assert moved[[start + 2, start + 5]].tolist() == pytest.approx([-0.25, -0.25], rel=2e-3)
    assert float(moved.abs().max()) <= 0.25


@pytest.mark.parametrize("form", ["one", "named", "several"])
def test_canaries_are_empty_records_behind_the_others(form: str) -> None:
    """Whatever the inputs' form: taken at any places, records as they are and zeros that say which canary they are."""
    numbers, targets = torch.arange(6.0).reshape(3, 2), torch.tensor([4, 5, 6])
    forms: dict[str, Any] = {
        "one": numbers,
        "named": {"x": numbers, "a": numbers[:, 0]},
        "several": (numbers, numbers[:, 0]),
    }
    records = RecordsAndCanaries((forms[form], targets), 2)
    assert (len(records), records.records) == (5, 3)
    found: Any = records.take(torch.tensor([[2], [4], [0], [3]]))
    taken, labels = found
    assert labels.tolist() == [[6], [0], [4], [0]]
    which = taken[NAME] if isinstance(taken, dict) else taken[-1]
    first = taken["x"] if isinstance(taken, dict) else taken[0]
    assert which.tolist() == [[0], [2], [0], [1]]
    assert first.tolist() == [[[4.0, 5.0]], [[0.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]]]
    assert numbers.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert [len(part) for part in (records.prototypes[1],)] == [0]
    empty: Any = RecordsAndCanaries((numbers[:0], targets[:0]), 2).take(torch.tensor([1, 0]))
    assert (empty[0][-1].tolist(), empty[1].tolist()) == ([2, 1], [0, 0])


def test_an_array_of_the_canaries_name_is_refused() -> None:
    """A model that takes such an input would be given another."""
    with pytest.raises(Malformed, match="has an array of the name canary"):
        marked({NAME: torch.zeros(1)}, torch.zeros(1, dtype=torch.int64))


def test_a_model_s_own_parameters_train_beside_canaries() -> None:
    """The wrapper holds the very model, so that what it learns is measured without it."""
    inner = nn.Linear(2, 3)
    model = CanaryModel(inner, 4)
    assert model.model is inner
    outputs, weight, which = model(torch.ones(1, 2), torch.tensor([3]))
    assert outputs.shape == (1, 3)
    assert (weight.tolist(), which.tolist()) == ([[0.0]], [3])
