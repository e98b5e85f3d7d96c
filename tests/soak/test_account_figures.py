"""Ten thousand random books: what is told of an account is what a loop of quotes admits."""

import pytest

from tests.policy.planning.random_books import random_book
from tests.policy.planning.test_account_figures import disagreement

BATCH = 500


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(20))
def test_the_runs_told_of_ten_thousand_books(batch: int) -> None:
    """Seeds from 1000 on."""
    first = 1_000 + batch * BATCH
    reported = {seed: disagreement(random_book(seed)) for seed in range(first, first + BATCH)}
    assert {seed: found for seed, found in reported.items() if found} == {}
