"""The ε of an account as a bound: the smaller of two odometers that share δ, both fixed when the partition opened.

The rule's own odometer holds at every moment, for every strategy. Beside it, while exactly one run has ever begun, the
ε of that run's whole plan holds by its privacy loss distribution: the plan was fixed before anything was seen, and
stopping early is a post-processing of the whole run. Each is reported at its part of δ less slack
(:attr:`ledger.filters.Rule.odometer_delta`). On the event that the first is the smaller one it fails with at most its
part, and on the event that the second is, with at most its own; so the smaller one keeps δ, the slack included. With
the whole of δ for each it would not: an analyst who stops where the smaller one is wrong reaches 1.5 times δ.

A voided charge has drawn nothing; every other one has begun or may, also one posted for no step. A holder that knows
a run knows all that its author knew before it, so the plan of an only run was chosen without any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

from ledger.accounts.pricing import COMPUTED
from ledger.commands.entry import Entry
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Account, Facts, Partition, Span
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.exposure import known_spans
from ledger.wire.malformed import Malformed

LINEAGES_MAX: Final = 200
RUNS_MAX: Final = 10_000
"""With more lineages or charges than this the first run is not searched: the rule's own odometer is reported."""

_KEPT: Final = 16_384
"""Accounts whose number is cached: accounts of retired slices change no more, and are shown often."""


class ReadableBook(Facts, Protocol):
    """The facts and entries of a book at one size, with the charges that are settled."""

    @property
    def size(self) -> int:
        """How many entries there are."""

    def entry(self, index: int) -> bytes:
        """The exact bytes of an entry. Raises: KeyError."""

    def holders(self, ref: str, most: int) -> list[str]:
        """The first ``most`` holders of accounts of a partition, in order."""

    def begun(self, ref: str, spans: Iterable[Span], most: int) -> list[Charge]:
        """The first ``most`` charges in these spans to a partition that were not voided."""


@dataclass(frozen=True, slots=True)
class AccountEpsilon:
    """The reported ε of an account.

    Attributes:
        epsilon: rounded up; None where no finite ε is proven.
        delta: of the partition's budget: ε and δ hold together, at every moment.
        bound: the name of the odometer that proves it.
    """

    epsilon: Fraction | None
    delta: Fraction
    bound: str


def account_epsilon(book: ReadableBook, account: Account) -> AccountEpsilon:
    """The smaller odometer of an account. Slow for an account with one run of a new plan; then cached."""
    partition = book.partitions[account.partition]
    rule = read_rule(partition.terms)
    own = odometer_epsilon(book, account)
    run = only_run(book, partition, account.holder) if rule.odometers and not account.loss.empty else None
    epsilon = None if run is None else _whole_plan(book, partition, run, rule.odometer_delta)
    if epsilon is None or (own.epsilon is not None and own.epsilon <= epsilon):
        return own
    return AccountEpsilon(epsilon, partition.delta, "PLD of the plan of its one run")


def odometer_epsilon(facts: Facts, account: Account) -> AccountEpsilon:
    """The odometer of an account's rule, whatever runs it is of."""
    partition = facts.partitions[account.partition]
    rule = read_rule(partition.terms)
    return AccountEpsilon(_own(rule, account.loss), partition.delta, f"{rule.kind()} odometer")


def only_run(book: ReadableBook, partition: Partition, holder: str) -> Charge | None:
    """The charge of the only run of a partition that a holder knows, pending or posted; None if none or several."""
    spans = _spans(book, partition.ref, holder)
    begun = book.begun(partition.ref, spans, 2) if book.runs(spans) <= RUNS_MAX else []
    return begun[0] if len(begun) == 1 else None


def _spans(book: ReadableBook, ref: str, holder: str) -> list[Span]:
    """The spans of all charges that count for a holder; every account of a partition is of a lineage that knows one."""
    if holder != GLOBAL:
        return known_spans(book.nodes, _node(holder), book.size)
    holders = book.holders(ref, LINEAGES_MAX + 2)
    if len(holders) > LINEAGES_MAX + 1:
        return []
    return [Span(_node(holder), 0, book.size) for holder in holders if holder != GLOBAL]


def _node(holder: str) -> int:
    return int(holder.partition(":")[2])


@lru_cache(maxsize=_KEPT)
def _own(rule: Rule, loss: Loss) -> Fraction | None:
    try:
        return rule.odometer(loss)
    except ArithmeticError:
        return None


def _whole_plan(book: ReadableBook, partition: Partition, run: Charge, delta: Fraction) -> Fraction | None:
    """The ε of the run's whole plan at a δ, None if none is proven."""
    body = Entry.parse(book.entry(run.index)).command_body
    assert isinstance(body, MakeCharge)
    try:
        return COMPUTED.epsilon(replace(partition, delta=delta), body)
    except (Rejected, Malformed):
        return None
