"""Thousands of random libraries against each rule, deeper than the daily ones."""

from fractions import Fraction
from functools import cache

import pytest
from msgspec import structs

from ledger.filters import Opening, Rule
from ledger.filters.reference_step_count import Reference
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.mechanism import PoissonGaussian
from tests.ledger.filters.first_run_odometer import Claim, reached
from tests.ledger.filters.game import Charging, Run
from tests.ledger.filters.gaussian_trials import random_gaussian_trial
from tests.ledger.filters.libraries import counted
from tests.ledger.filters.renyi_trials import random_trial
from tests.ledger.filters.test_adversary_first_run import Telling
from tests.ledger.filters.test_adversary_odometers import DELTA, RUNS, WIDTH, covid

WITHIN = 1 + 1e-9
BATCH = 100


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(30))
def test_thousands_of_libraries_never_break_renyi(batch: int) -> None:
    """Seeds from 1000 on: five runs, two at a time."""
    first = 1_000 + batch * BATCH
    assert max(random_trial(seed).filtered(admissions=5) for seed in range(first, first + BATCH)) <= WITHIN


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(10))
def test_a_thousand_libraries_never_beat_the_odometer(batch: int) -> None:
    """Whatever was asked for, four runs deep."""
    for seed in range(1_000 + batch * BATCH, 1_100 + batch * BATCH):
        trial = random_trial(seed)
        assert trial.told(trial.rule, admissions=4) <= WITHIN, seed


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(20))
def test_thousands_of_libraries_never_break_gaussian(batch: int) -> None:
    """Certificates of both directions."""
    first = 1_000 + batch * BATCH
    assert max(random_gaussian_trial(seed).reached() for seed in range(first, first + BATCH)) <= WITHIN


@pytest.mark.soak
@pytest.mark.parametrize(("halved", "beaten"), [(True, False), (False, True)])
def test_covid_runs_under_reference(*, halved: bool, beaten: bool) -> None:
    """Thirteen runs of the reference plan, any of which the analyst stops at: .58 of δ, or 1.16 times δ."""
    plan = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
    rule: Rule = Reference.choose(Opening(Fraction(1, 1483), (Fraction(3),), plan))
    told = rule if halved else structs.replace(rule, odometers=None)
    own = cache(lambda loss: float(told.odometer(Loss((186 * loss.finite[0],), (0,)))))
    runs = [Run(0, 1)]
    charging = Charging.per_step(runs, [counted(1)], lambda loss: loss.finite[0] <= RUNS)
    most = reached(charging, runs, [covid(1)], Claim(own, float(told.odometer_delta)), WIDTH) / DELTA
    assert most > 0.5
    assert (most > 1.1) is beaten
    assert (most <= 1) is not beaten


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(10))
def test_a_thousand_libraries_never_beat_two_odometers(batch: int) -> None:
    """The rule's own, and the first run's curve."""
    for seed in range(1_000 + batch * BATCH, 1_100 + batch * BATCH):
        trial = random_trial(seed)
        assert Telling.of(trial.rule).multiple(trial) <= WITHIN, seed
