"""What is told of an account is what a loop of quotes finds, whatever binds."""

from collections import Counter

import pytest

from ledger.domain.facts import GLOBAL
from ledger.domain.outcomes import Code
from tests.factories.documents import plan
from tests.factories.people import BANKS
from tests.policy.planning.random_books import RandomBook, admitted, random_book

BOOKS = 50
SOAK_BLOCKS, SOAK_BOOKS = 20, 500
MOST = 40
"""More runs than fit into any of these budgets."""
TINY = plan(1, "64")
"""A run for which there is room wherever there is any."""


def disagreement(book: RandomBook) -> str | None:
    """Where the number told is not the number admitted; else None."""
    bank, last = book.source.choice(BANKS), book.last
    told, everyone = book.figures(bank), book.figures_of(GLOBAL)
    tiny = book.ask(TINY, bank=bank).decide().code
    if (told.closed and not tiny.refused) or (tiny is Code.BUDGET_EXHAUSTED and not told.closed):
        return f"{bank}: {told} told, and the smallest run is {tiny.word}"
    if last is None:
        return None
    assert told.runs is not None
    if everyone.runs is not None and everyone.runs < told.runs:
        return f"{everyone} told of everyone, {told} of {bank}"
    found = admitted(book, bank, last[2], MOST)
    return None if told.runs == found else f"{bank}: {told} told, {found} admitted"


def what_binds(book: RandomBook) -> str:
    """In short."""
    told = book.figures(BANKS[0])
    return (told.closed or told.binding or "nothing").split(",")[0].split(" since")[0]


def disagreements(first: int, books: int) -> tuple[dict[int, str], Counter[str]]:
    """Of so many books those that disagree, by seed; and what binds in all of them."""
    made = {seed: random_book(seed) for seed in range(first, first + books)}
    seen = Counter(map(what_binds, made.values()))
    return {seed: found for seed, book in made.items() if (found := disagreement(book))}, seen


@pytest.mark.parametrize("first", [0, BOOKS])
def test_the_runs_reported_are_those_that_a_loop_of_quotes_admits(first: int) -> None:
    """Caps, quotas, coalitions, Levels, age, retirement, freezes, decrees, contracts, and what one run may be."""
    found, seen = disagreements(first, BOOKS)
    assert found == {}
    assert {"the budget of everyone together", "the cap of a lineage", "the partition is retired"} <= {*seen}
    assert any("one run has an ε" in one or "a run has at most" in one or "noise" in one for one in seen)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(SOAK_BLOCKS))
def test_so_they_are_in_ten_thousand_books(block: int) -> None:
    """By every rule that a partition can have for these plans."""
    assert disagreements(block * SOAK_BOOKS, SOAK_BOOKS)[0] == {}
