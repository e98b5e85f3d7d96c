"""Thousands of random libraries against each rule, deeper than the daily ones."""

import pytest

from tests.ledger.filters.gaussian_trials import random_gaussian_trial
from tests.ledger.filters.renyi_trials import random_trial

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
