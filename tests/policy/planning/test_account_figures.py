"""What is told of an account is what a loop of quotes finds, whatever binds."""

from collections import Counter

import pytest

from ledger.domain.facts import GLOBAL
from tests.factories.people import BANKS
from tests.policy.planning.random_books import RandomBook, admitted, random_book

BOOKS = 50
MOST = 40
"""More runs than fit into any of these budgets."""


def disagreement(book: RandomBook) -> str | None:
    """Where the number told is not the number admitted; else None."""
    last = book.last
    if last is None:
        return None
    bank = book.source.choice(BANKS)
    told, everyone = book.figures(bank), book.figures_of(GLOBAL)
    assert told.runs is not None
    if everyone.runs is not None and everyone.runs < told.runs:
        return f"{everyone} told of everyone, {told} of {bank}"
    found = admitted(book, bank, last[2], MOST)
    return None if told.runs == found else f"{bank}: {told} told, {found} admitted"


def what_binds(book: RandomBook) -> str:
    """In short."""
    told = book.figures(BANKS[0])
    return (told.closed or told.binding or "nothing").split(",")[0].split(" since")[0]


@pytest.mark.parametrize(
    "first", [0, BOOKS, *(pytest.param(place * BOOKS, marks=pytest.mark.soak) for place in (2, 3))]
)
def test_the_runs_told_are_those_that_a_loop_of_quotes_admits(first: int) -> None:
    """Caps, quotas, coalitions, Levels, age, retirement, freezes, decrees, contracts, and what one run may be."""
    books = {seed: random_book(seed) for seed in range(first, first + BOOKS)}
    seen = Counter(map(what_binds, books.values()))
    assert {seed: found for seed, book in books.items() if (found := disagreement(book))} == {}
    assert {"the budget of everyone together", "the cap of a lineage", "the partition is retired"} <= {*seen}
    assert any("one run has an ε" in one or "a run has at most" in one or "noise" in one for one in seen)
