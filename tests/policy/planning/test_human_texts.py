"""What people read holds names, dates and numbers: no node's number, no Python value, no time in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ledger.domain.facts import GLOBAL, holder_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import NAT
from policy.cli.text_report import breach_lines, impact_lines, merger_lines, run_lines
from policy.planning.account_caps import account_status, accounts_over_cap, empty_account, partition_bounds
from policy.planning.merger_impact import merged_accounts
from policy.planning.plan_report import report
from policy.planning.policy_impact import impact
from tests.factories.documented import policy_bytes
from tests.factories.documents import plan
from tests.factories.people import BANKS
from tests.policy.planning.random_books import REF, RandomBook, random_book

FOR_PROGRAMS = re.compile(r"lineage:\d|Fraction\(|\d{13}|\('|object at 0x|<class|\b(True|False)\b|[ :]None\b")


def figures_told(book: RandomBook) -> Iterator[str]:
    """Of every account."""
    for holder in (GLOBAL, *(holder_of(node) for node in book.state.nodes)):
        told = book.figures_of(holder)
        yield from (told.share, told.binding or "", told.closed or "")


def told(book: RandomBook) -> Iterator[str]:
    """Everything that planning says of a book, line by line."""
    facts, now, bank = book.state, book.clock(), BANKS[0]
    yield from figures_told(book)
    yield from breach_lines(list(accounts_over_cap(facts, now)))
    yield from merger_lines(merged_accounts(facts, BANKS[:2], now))
    yield from run_lines(report(book.ask(plan(3000, "0.8"), bank=bank), 0, 0))
    yield from run_lines(report(book.ask(plan(1, "30"), bank=bank), 0, 0))
    changed = policy_bytes(
        book.version + 1,
        alerts=["0.25", "0.75"],
        levels=[{"dataset": "digits", "level": 2, "provider": "did:web:hospital.example"}],
        coalitions=[{"epsilon_max": "2", "members": [*BANKS[:2]], "name": "those-two"}],
        run={"epsilon_max": "1", "noise_multiplier_min": "1.5"},
        lineage={"epsilon_max": "1"},
        load=plan(),
    )
    yield from impact_lines(impact(facts, changed, now, facts.charges))
    decree: c.Object = {"holder": holder_of(facts.organisations[bank].node), "partition": REF, "reason": "an order"}
    yield book.fork().decide("decree", "decree-last", "did:web:sro.example", decree).detail


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (3, 4, 5))])
def test_no_text_for_people_is_one_for_programs(seed: int) -> None:
    """Reports of plans, policies, mergers and breaches, and what is told of accounts."""
    lines = [*told(random_book(seed))]
    assert len(lines) > 20
    assert [one for one in lines if FOR_PROGRAMS.search(one)] == []


def test_an_infinite_charge_is_no_share() -> None:
    """An account whose every order holds a charge without a bound is told as that, not as 100.0 % used."""
    book = random_book(0)
    partition = book.state.partitions[REF]
    account = empty_account(partition, GLOBAL)
    width = len(account.posted.finite)
    spike = account.posted._replace(finite=(*(NAT,) * (width - 1), 0), infinite=(*(1,) * (width - 1), 0))
    told_of = account_status(book.state, account._replace(posted=spike), partition_bounds(book.state, partition, 0))
    assert told_of.used == "infinite"
