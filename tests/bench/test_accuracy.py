"""What accuracy is measured with: Adult by public knowledge, a public basis, and runs that a ledger charged."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from msgspec import structs

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.bench import accuracy, adult
from tests.bench.accuracy import Recipe
from tests.bench.basis import LENGTH, Basis
from tests.bench.charged import charged

PAGE = """| a remark: with a colon.
>50K, <=50K.

age: continuous.
workclass: Private, State-gov.
fnlwgt: continuous.
education-num: continuous.
capital-gain: continuous.
capital-loss: continuous.
hours-per-week: continuous.
"""


def test_adult_is_read_by_its_page_and_public_ranges() -> None:
    """Ranges from 0 to 1 and no further, one place a category, none for a question mark, no census weight."""
    text = "|1x3\n17, State-gov, 5, 16, 0, 5000, 40, >50K.\n99, ?, 5, 1, 99999, 0, 200, <=50K\n\n"
    inputs, targets = adult.encoded(text, adult.attributes(PAGE))
    assert targets.tolist() == [1, 0]
    assert inputs[0].tolist() == pytest.approx([0, 0, 1, 1, 0, 1, 0.4])
    assert inputs[1].tolist() == pytest.approx([1, 0, 0, 0, 1, 0, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("17, Private, 5, 16, 0, 0, <=50K", "record 1: must have 7 values"),
        ("17, Private, 5, 16, 0, 0, 40, rich", "record 1: must have 7 values"),
        ("17, Cloud, 5, 16, 0, 0, 40, <=50K", "record 1: workclass: is none of its categories"),
        ("-1, Private, 5, 16, 0, 0, 40, <=50K", "record 1: age: must be a whole number"),
        ("17, Private, 5, 16, 0, 0, ?, <=50K", "record 1: hours-per-week: must be a whole number"),
    ],
)
def test_adult_that_is_not_as_its_page_says_is_refused(line: str, match: str) -> None:
    """By record and attribute."""
    with pytest.raises(Malformed, match=match):
        adult.encoded(line, adult.attributes(PAGE))


def test_a_number_without_a_public_range_is_refused() -> None:
    """Its range would have to come from the records."""
    with pytest.raises(Malformed, match=r"adult\.names"):
        adult.attributes(PAGE + "height: continuous.\n")


def test_a_basis_flattens_what_it_was_made_of() -> None:
    """Public records have length 50, their leading directions uncorrelated, variances to the power that is left."""
    generator = torch.Generator().manual_seed(2)
    mixing = torch.randn((12, 12), generator=generator)
    public = torch.randn((4_000, 12), generator=generator) @ mixing + 3
    plain, flat = (Basis.of(public, 5, part).of_records(public) for part in (0.0, 0.4))
    for made in (plain, flat):
        assert made.shape == (4_000, 5)
        assert float((made**2).sum(dim=1).mean()) == pytest.approx(LENGTH**2, rel=1e-3)
        spread = torch.cov(made.T)
        assert float((spread - spread.diag().diag()).abs().max()) < 1e-2 * float(spread.diag().max())
    ratio = plain.var(dim=0) / plain.var(dim=0)[0]
    assert torch.allclose(flat.var(dim=0) / flat.var(dim=0)[0], ratio**0.6, rtol=1e-2)


def test_a_basis_looks_at_one_record_at_a_time() -> None:
    """Coordinates alone equal coordinates among others; a direction of no spread stays finite."""
    public = torch.randn((50, 6), generator=torch.Generator().manual_seed(1))
    public[:, 0] = 2.0
    basis = Basis.of(public, 6, 1.0)
    records = torch.randn((7, 6), generator=torch.Generator().manual_seed(3))
    together = basis.of_records(records)
    assert torch.isfinite(together).all()
    for place in range(7):
        assert torch.allclose(basis.of_records(records[place : place + 1])[0], together[place], atol=1e-4)


def test_measures_are_those_of_their_names() -> None:
    """Ten classes by the highest score; two by sign, and by how often the one outranks the other."""
    scores = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    assert accuracy.measure(scores, torch.tensor([1, 0, 0])) == {"accuracy": pytest.approx(2 / 3)}
    one = torch.tensor([[-1.0], [2.0], [0.5], [-3.0]])
    found = accuracy.measure(one, torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert found == {"accuracy": 0.5, "auc": 0.5}


SPENT: Final = Plan(Fraction(1, 4), Fraction(21_377, 10_000), Fraction(1, 10), 12, 500)
"""As many steps of this noise as ε 2 has room for."""


def test_a_run_that_broke_is_posted_in_full(tmp_path: Path) -> None:
    """Whatever broke it, and after how many steps."""
    with pytest.raises(ZeroDivisionError), charged(tmp_path, "run", SPENT, 1_000, Fraction(2)) as reported:
        raise ZeroDivisionError
    assert reported.steps == SPENT.steps
    assert reported.posted is not None


def test_a_run_beyond_its_budget_is_never_begun(tmp_path: Path) -> None:
    """One step more than fits is refused before anything is trained."""
    begun = []
    plan = structs.replace(SPENT, steps=13)
    with pytest.raises(AssertionError, match="run_above_contract"), charged(tmp_path, "run", plan, 1_000, Fraction(2)):
        begun.append("run")
    assert not begun


def test_a_run_is_made_once(tmp_path: Path) -> None:
    """Lines are found again by recipe and seed, whatever else they tell; another recipe is another run."""
    recipe, into = Recipe("mnist", Fraction(2), 2, 100, 1.0, Fraction(1, 2)), tmp_path / "results.jsonl"
    assert not accuracy.known(into)
    for seed in (0, 1):
        accuracy.write(into, {**recipe.to_json(), "seed": seed, "accuracy": 0.5})
    assert [json.loads(line)["seed"] for line in into.read_text().splitlines()] == [0, 1]
    assert len(accuracy.known(into)) == 2
    accuracy.write(into, {**Recipe("mnist", Fraction(3), 2, 100, 1.0, Fraction(1, 2)).to_json(), "seed": 1})
    assert len(accuracy.known(into)) == 3


def test_a_mean_below_its_floor_is_reported() -> None:
    """Mean and range of the runs of a recipe; the verdict falls when one mean is not above its floor."""
    recipe = accuracy.RECIPES["mnist-1"].to_json()
    runs = {str(seed): {**recipe, "seed": seed, "accuracy": value} for seed, value in enumerate((0.981, 0.984))}
    assert accuracy.summary(runs) == (["mnist-1: accuracy 0.9825 (0.981 to 0.984, 2 runs); above 0.982"], True)
    runs["1"]["accuracy"] = 0.982
    lines, above = accuracy.summary(runs)
    assert (lines, above) == (["mnist-1: accuracy 0.9815 (0.981 to 0.982, 2 runs); BELOW 0.982"], False)


def test_a_run_learns_and_tells_what_it_cost(tmp_path: Path) -> None:
    """From charge to result on made-up records: the engine, the step log and the ledger together."""
    generator = np.random.default_rng(5)
    targets = torch.from_numpy(generator.integers(0, 10, 2_500))
    inputs = torch.from_numpy(generator.normal(size=(2_500, 20)).astype(np.float32))
    inputs[torch.arange(2_500), targets] += 3
    data = (inputs[:2_000], targets[:2_000]), (inputs[2_000:], targets[2_000:])
    recipe = Recipe("mnist", Fraction(2), 3, 500, 4.0, Fraction(1, 10))
    seen: list[int] = []
    result = accuracy.run(recipe, SPENT, 0, data, tmp_path, lambda step, _: seen.append(step))
    assert result["accuracy"] > 0.6
    assert seen == [*range(1, 13)]
    assert result["steps"] == 12
    assert Fraction(19, 10) < Fraction(result["epsilon_told"]) <= 2
