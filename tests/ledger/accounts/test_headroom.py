"""The numbers a decision compares: they say what the rule says, on the safe side, for every rule."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Final, cast

from hypothesis import given
from hypothesis import strategies as st

from ledger.accounts.headroom import GroupLimit, Limit, Room
from ledger.accounts.shared_account import STEPS
from ledger.domain.facts import GLOBAL, Account, Facts
from ledger.filters import Cap, Rule
from ledger.filters.gaussian import GaussianRule
from ledger.filters.pure_dp import PureSum
from ledger.filters.reference_step_count import Reference
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss, Segment
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import DELTA_ONE, NAT

DELTA: Final = Fraction(1, 100_000)
EPSILON: Final = Fraction(3)
OWN: Final = "lineage:7"
ROUNDED: Final = "; the part of others is rounded up"
ZERO: Final = {width: Loss.zero(width) for width in range(4)}
RULES: Final[dict[str, Rule]] = {
    "gaussian": GaussianRule(DELTA, EPSILON, 1_000, (10,)),
    "pure": PureSum(),
    "reference": Reference(DELTA, EPSILON, Fraction(2), Fraction(1, 16)),
    "renyi": Renyi(DELTA, (4, 8), (500, 500), 1_000),
}
NUMBERS = st.integers(0, 12) | st.integers(0, 2 * NAT) | st.sampled_from((NAT, NAT + 1, NAT - 1))
TOLD = re.compile(r"\(([a-z0-9 ]+): ([0-9.]+) \+ ([0-9.]+) (<=|>) ([0-9.]+)( times 1/[0-9]+)?( nat| of δ)?\)\Z")


def room(kind: str, before: list[int], run: list[int], bounds: list[int | None], holder: str = GLOBAL) -> Room:
    """An account with so much before, a run of one step, and a cap."""
    rule = RULES[kind]
    width = len(rule.coordinates)
    limit = Limit("did:web:h.example/d/p", holder, Cap(EPSILON, tuple(bounds[:width])))
    return Room(limit, rule, Loss(tuple(before[:width]), (0,) * width), (Segment(1, tuple(run[:width])),), 1)


@given(
    st.sampled_from(sorted(RULES)),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS.map(lambda bound: bound + 1), min_size=3, max_size=3),
)
def test_the_numbers_told_say_what_the_rule_says(
    kind: str, before: list[int], run: list[int], bounds: list[int]
) -> None:
    """Added up they are on the side that the rule decides; what is used is never told less, a capacity never more."""
    asked = room(kind, before, run, [*bounds])
    check = asked.check({}, OWN)
    assert check.passed == asked.enough == asked.rule.admits(asked.after, asked.limit.cap)
    found = TOLD.search(check.text)
    assert found, check.text
    name, one, more, side, most, raw, _ = found.groups()
    place = [one.name for one in asked.rule.coordinates].index(name)
    unit = 1 if raw or name == "reference steps" else DELTA_ONE if name == "delta slack" else NAT
    assert (Fraction(one) + Fraction(more) <= Fraction(most)) == (side == "<=") == check.passed
    assert Fraction(one) * unit >= before[place]
    assert Fraction(more) * unit >= run[place]
    assert Fraction(most) * unit <= bounds[place]


def test_what_is_compared_is_told_in_its_unit() -> None:
    """Decimals while they keep the sides; whole units where only those do; steps as steps."""
    few = room("renyi", [NAT // 2, NAT, 0], [NAT // 4, NAT, 0], [NAT, NAT, 0])
    assert few.check({}, OWN).text.endswith(
        "is 50.0 % used and would be 75.0 %; the cap of ε 3 is the partition's (order 4: 0.5000 + 0.2500 <= 1.0000 nat)"
    )
    over = room("pure", [NAT // 3], [1], [NAT // 3])
    assert over.check({}, OWN).text.endswith("(order infinity: 0.3334 + 0.0001 > 0.3333 nat)")
    full = room("pure", [NAT // 3 - 1], [1], [NAT // 3])
    assert full.check({}, OWN).text.endswith(f"(order infinity: {NAT // 3 - 1} + 1 <= {NAT // 3} times 1/{NAT} nat)")
    steps = room("reference", [2_400], [186], [2_434])
    assert steps.check({}, OWN).text.endswith(
        "0 of the run's 1 steps would fit; the cap of ε 3 is the partition's (reference steps: 2400 + 186 > 2434)",
    )
    slack = room("renyi", [0, 0, 1_000], [0, 0, 1], [NAT, NAT, 1_000])
    assert slack.check({}, OWN).text.endswith(f"(delta slack: 1000 + 1 > 1000 times 1/{DELTA_ONE} of δ)")


def test_where_every_order_is_infinite_nothing_is_compared() -> None:
    """No per cent says how full that would be, and no number stands beside it."""
    rule = RULES["renyi"]
    limit = Limit("p/d/q", GLOBAL, Cap(EPSILON, (NAT, NAT, 0)))
    asked = Room(limit, rule, Loss.zero(3), (Segment(1, (None, None, 0)),), 1)
    check = asked.check({}, OWN)
    assert not check.passed
    assert check.text.endswith(
        "is 0.0 % used and would be infinite; 0 of the run's 1 steps would fit; the cap of ε 3 is the partition's"
    )


def test_a_coalition_is_told_as_full_and_no_more() -> None:
    """The amounts are of what others did."""
    full = room("pure", [NAT], [NAT], [NAT], holder="lineage:9").check({}, OWN)
    assert (full.passed, full.source) == (False, "lineage:9")
    assert full.text == "an account of a coalition has no room on did:web:h.example/d/p"


@given(
    st.sampled_from(sorted(RULES)),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS.map(lambda bound: bound + 1), min_size=3, max_size=3),
)
def test_the_part_of_others_is_shown_rounded_and_decides_exactly(
    kind: str, own: list[int], others: list[int], run: list[int], bounds: list[int]
) -> None:
    """The decision is that of the exact sum; what is shown is never less, and the same for all sums of one step."""
    exact = room(kind, [a + b for a, b in zip(own, others, strict=True)], run, [*bounds])
    width = len(exact.before.finite)
    part = Account("did:web:h.example/d/p", OWN, exact.before - Loss(tuple(others[:width]), (0,) * width), ZERO[width])
    accounts = {(part.partition, OWN): part}
    rounded = exact._replace(limit=replace(exact.limit, rounded=True))
    check = rounded.check(accounts, OWN)
    assert check.passed == rounded.enough == exact.enough
    shown = rounded.as_shown(accounts, OWN)
    assert all(a >= b for a, b in zip(shown.before.finite, exact.before.finite, strict=True))
    for place in range(width):
        step = -(-bounds[place] // STEPS)
        assert (shown.before.finite[place] - own[place]) % step == 0
        assert shown.before.finite[place] - exact.before.finite[place] < step
    # As much more of others as the step has room for is shown alike, where the decision is the same.
    more = exact._replace(limit=rounded.limit, before=shown.before)
    if more.enough == exact.enough and shown != rounded:
        assert more.check(accounts, OWN).text == check.text
    if found := TOLD.search(check.text.removesuffix(ROUNDED)):
        assert (found[4] == "<=") == check.passed


@given(
    st.sampled_from(sorted(RULES)),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.lists(NUMBERS.map(lambda bound: bound + 1), min_size=3, max_size=3),
)
def test_the_part_of_others_counts_rounded_where_the_policy_says_so(
    kind: str, own: list[int], others: list[int], run: list[int], bounds: list[int]
) -> None:
    """What it admits the exact sum admits; all parts of others that one step holds are decided and shown alike."""
    exact = room(kind, [a + b for a, b in zip(own, others, strict=True)], run, [*bounds])
    limit = replace(exact.limit, counted_for=OWN)
    width = len(exact.before.finite)
    steps = [-(-bound // STEPS) for bound in bounds[:width]]
    rounded = [-(-part // step) * step for part, step in zip(others[:width], steps, strict=True)]
    texts = set()
    for part in (others[:width], rounded):
        facts = _shared(exact.rule, limit, own[:width], part)
        counted = Room.of(facts, limit, exact.segments, 1)
        assert [*counted.before.finite] == [a + b for a, b in zip(own[:width], rounded, strict=True)]
        assert GroupLimit(limit, (limit.partition,)).full(facts, exact.segments, 1) == (
            [] if counted.enough else [limit.partition]
        )
        assert not counted.enough or exact.enough
        texts.add(counted.check(facts.accounts, OWN).text)
    assert len(texts) == 1
    # Its own account counts exactly.
    mine = replace(limit, holder=OWN)
    assert [*mine.before(_shared(exact.rule, mine, own[:width], others[:width])).finite] == own[:width]


def _shared(rule: Rule, limit: Limit, own: list[int], others: list[int]) -> Facts:
    """A state with everyone's account and one's own."""
    nothing, ref = ZERO[len(own)], limit.partition
    whole = Loss(tuple(a + b for a, b in zip(own, others, strict=True)), nothing.infinite)
    accounts = {GLOBAL: whole, OWN: Loss(tuple(own), nothing.infinite)}
    terms = c.dump(rule.to_json()).decode()
    return cast(
        "Facts",
        SimpleNamespace(
            partitions={ref: SimpleNamespace(terms=terms)},
            accounts={(ref, holder): Account(ref, holder, loss, nothing) for holder, loss in accounts.items()},
            forgiven={},
        ),
    )
