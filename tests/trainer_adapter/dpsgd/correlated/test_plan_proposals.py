"""Plans with correlated noise for a target: each keeps its ε, and the error that it is chosen by is the plan's own."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from fractions import Fraction
from typing import Final

import pytest

from ledger.accounting.calibration import calibrate_noise
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.correlated.strategies import Buffered
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.correlated.noise_report import NoiseReport
from trainer_adapter.dpsgd.correlated.plan_proposals import check_bands, chosen, correlated, independent, proposals
from trainer_adapter.dpsgd.correlated.strategy_search import prefix_error
from trainer_adapter.job.privacy_target import PrivacyTarget

RECORDS: Final = 500
DELTA: Final = Fraction(1, 10**5)
RELATION: Final = "REPLACE_SPECIAL"
TARGET: Final = PrivacyTarget(Fraction(3), 100, Fraction(1, 2), 70)


def choose(target: PrivacyTarget) -> RunPlan:
    """As the service's terms would have it, of one partition of so many records."""
    if target.batch_size_expected > RECORDS:
        raise Malformed("train.privacy.batch_size_expected", f"must be at most {RECORDS}")
    probability = Fraction(target.batch_size_expected, RECORDS)
    noise = calibrate_noise(probability, target.steps, target.epsilon, DELTA)
    return target.plan(probability, noise, RELATION)


def test_every_proposal_keeps_the_target() -> None:
    """As many bands as records have room for; the ε of each is within the target's, by no more noise than needed."""
    found = proposals(TARGET, choose)
    assert [one.bands for one in found] == [1, 2, 4]
    for one in found:
        assert Fraction(29, 10) < reported_epsilon(one.plan.whole, DELTA, RELATION) <= 3
        assert parse_plan(one.plan.to_json()) == one.plan
        assert one.plan.batch_size_expected == 100
    last = found[-1].plan
    assert isinstance(last, CorrelatedPlan)
    assert (last.rounds, last.sampling_probability) == (18, Fraction(4, 5)), "70 steps in whole rounds of 4"
    assert found[-1].error == pytest.approx(float(last.noise_multiplier) * prefix_error(last.matrix, 4, 72))


@pytest.mark.parametrize(("left", "bands"), [(0.3, 4), (0.66, 4), (0.67, 1), (0.9, 1), (1.1, 1)])
def test_bands_are_chosen_where_they_take_a_third_of_the_noise_away(left: float, bands: int) -> None:
    """Else the plan is DP-SGD's, whose error the chosen one never passes; a number that is named is no question."""
    target = replace(TARGET, batch_size_expected=5)
    one, *others = (independent(target, choose), correlated(target, 2, choose), correlated(target, 4, choose))
    found = (one, *(replace(other, error=one.error * (left + 0.1 * (other.bands == 2))) for other in others))
    assert chosen(found).bands == bands
    assert chosen(found).error <= one.error
    report = NoiseReport("a-run", found)
    assert report.to_json()["chosen"] == bands
    assert ("[train.plan]" in report.in_words()) == (bands == 4)
    assert ("--bands 4" in report.in_words()) == (bands == 1 and left < 1)
    assert NoiseReport("a-run", (one, found[1]), named=True).to_json()["chosen"] == 2


def test_a_report_ends_with_the_plan_of_least_error() -> None:
    """Of several the least; the one that was named though it be more; none where independent noise is least."""
    target = replace(TARGET, batch_size_expected=5)
    more, two = (independent(target, choose), correlated(target, 2, choose))
    less = replace(two, error=0.6 * two.error)
    found = (more, less)
    words = NoiseReport("a-run", found).in_words()
    assert "2 bands leave least" in words
    assert (
        tomllib.loads(words[words.index("[train.plan]") : words.index("Nothing")])["train"]["plan"]
        == less.plan.to_json()
    )
    worse = replace(less, error=2 * more.error)
    assert "keep [train.privacy]" in NoiseReport("a-run", (more, worse)).in_words()
    named = NoiseReport("a-run", (more, worse), named=True)
    assert "2 bands leave more than independent noise" in named.in_words()
    assert (named.to_json()["least"], NoiseReport("a-run", found).to_json()["least"]) == (1, 2)


def test_a_stream_is_all_steps_at_once() -> None:
    """A band a step, each record in one of them with the probability that gives the batch."""
    target = replace(TARGET, batch_size_expected=5)
    plan = correlated(target, 70, choose).plan
    assert isinstance(plan, CorrelatedPlan)
    assert (plan.rounds, plan.bands, plan.sampling_probability) == (1, 70, Fraction(7, 10))
    assert isinstance(plan.strategy, Buffered)
    assert reported_epsilon(plan.whole, DELTA, RELATION) <= 3


@pytest.mark.parametrize(
    ("bands", "match"),
    [
        (1, r"^bands: must be at least 2"),
        (-3, r"^bands: must be at least 2"),
        (71, r"^bands: must be at most the steps: 70"),
        (65, r"^bands: must be at most 64, or all 70 steps"),
    ],
)
def test_bands_that_no_run_of_these_steps_has_are_refused(bands: int, match: str) -> None:
    """By name, before anything is computed."""
    with pytest.raises(Malformed, match=match):
        correlated(TARGET, bands, choose)


def test_stages_have_no_correlated_noise() -> None:
    """Their price is of several mechanisms together."""
    with pytest.raises(Malformed, match=r"^train\.privacy: has stages"):
        check_bands(replace(TARGET, stages={"statistics": []}), 4)


def test_more_records_than_there_are_are_refused() -> None:
    """A number of bands that is named is not left out silently."""
    with pytest.raises(Malformed, match=r"^bands: make rounds of 800 records: must be at most 500"):
        correlated(TARGET, 8, choose)
