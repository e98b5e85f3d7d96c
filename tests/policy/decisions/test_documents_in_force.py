"""What several documents say of one thing: the least number binds, by the document that says it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from policy.checks.field_readers import format_time
from policy.decisions.charges import strictest_refund
from policy.decisions.documents_in_force import Binding, binding, caps_of
from policy.documents import ContractDocument, Policy
from tests.factories.decision_facts import decide
from tests.factories.documented import opened, policy_document
from tests.factories.documents import NOW, contract
from tests.factories.memory import ref_of
from tests.factories.people import BANKS, SRO

EPSILON = Fraction(6)


def _binding(**said: Any) -> Binding:  # noqa: ANN401 - whatever a policy holds
    policy = Policy.of(policy_document(**said))
    lineage = policy.lineage.epsilon_max
    return Binding(policy, 1, policy.source, caps_everyone=True, lineage_epsilon_max=lineage,
                   lineage_source=policy.source, age_days_max=None, age_source="")  # fmt: skip


def _contract(**said: Any) -> ContractDocument:  # noqa: ANN401 - whatever a contract holds
    return ContractDocument.of(contract(BANKS[0], starts=NOW, ends="2027-01-01T00:00:00Z", **said))


@pytest.mark.parametrize(
    ("policy", "agreed", "share", "source"),
    [
        (None, None, None, ""),
        ("0.4", None, Fraction(2, 5), "policy"),
        ("0.4", "0.5", Fraction(2, 5), "policy"),
        ("0.4", "0.4", Fraction(2, 5), "policy"),
        ("0.5", "0.4", Fraction(2, 5), "contract"),
        (None, "0.4", Fraction(2, 5), "contract"),
    ],
)
def test_the_smaller_quota_binds(policy: str | None, agreed: str | None, share: Fraction | None, source: str) -> None:
    """By policy or contract; of equal ones the policy's. Neither's is no quota, and no document says so."""
    binds = _binding(quota=None if policy is None else {"share_max": policy})
    document = _contract(**({} if agreed is None else {"share_max": agreed}))
    caps = caps_of(EPSILON, binds, document)
    assert caps.share == share
    assert caps.share_source.partition(" ")[0] == source
    alone = caps_of(EPSILON, binds, None)
    assert (alone.share, alone.share_source) == (binds.policy.share_max, binds.policy.source if policy else "")


@pytest.mark.parametrize(
    ("policy", "agreed", "least", "source"),
    [
        ("5", None, 5, "policy"),
        ("5", "5", 5, "policy"),
        ("5", "4.5", Fraction(9, 2), "contract"),
        ("5", "5.5", 5, "policy"),
        ("7", None, 6, ""),
        ("7", "6.5", 6, ""),
        ("6", None, 6, "policy"),
    ],
)
def test_the_smaller_cap_of_a_lineage_binds(policy: str, agreed: str | None, least: Fraction, source: str) -> None:
    """Never more than the partition's budget, which no document says."""
    binds = _binding(lineage={"epsilon_max": policy}, budget={"delta_max": "0.00001", "epsilon_max": "8"})
    document = _contract(**({} if agreed is None else {"lineage": {"epsilon_max": agreed}}))
    caps = caps_of(EPSILON, binds, document)
    assert (caps.everyone, caps.lineage) == (EPSILON, least)
    assert caps.lineage_source.partition(" ")[0] == source


@pytest.mark.parametrize("shown", ["rounded", "rounded_decisions", "exact", None])
def test_shared_accounts_are_rounded_unless_the_policy_says_exact(shown: str | None) -> None:
    """In the caps of every charge."""
    caps = caps_of(EPSILON, _binding(shared_accounts=shown), None)
    assert (caps.rounded, caps.counts_rounded) == (shown != "exact", shown == "rounded_decisions")


@pytest.mark.parametrize(
    ("stated", "strictest"),
    [
        (("stated", "stated"), "stated"),
        (("stated", "attested"), "attested"),
        (("attested", "never", "stated"), "never"),
        (("stated", None), ""),
        ((None,), ""),
        ((), ""),
    ],
)
def test_the_strictest_refund_is_that_of_all_policies(stated: tuple[str | None, ...], strictest: str) -> None:
    """None of them may be silent."""
    assert strictest_refund(tuple(Policy.of(policy_document(refund=one)) for one in stated)) == strictest


def test_of_equal_ages_the_policy_in_force_says_so() -> None:
    """And not the version before, whose Level still binds; at Level 0 no document says an age."""
    market = opened(level=2, model_release=False)
    market.clock.now += 1_000
    later = policy_document(2, effective=format_time(market.clock.now))
    market.enter(later, "policy-2", SRO, SRO)
    binds = binding(market.state, market.state.partitions[ref_of("one")], market.clock.now)
    assert binds is not None
    assert (binds.level, binds.level_source[-1], binds.age_source[-1]) == (2, "1", "2")
    free = opened(level=0, partition_age_days_max=None)
    unbound = binding(free.state, free.state.partitions[ref_of("one")], free.clock.now)
    assert unbound is not None
    assert (unbound.age_days_max, unbound.age_source) == (None, "")


def test_where_a_policy_is_silent_no_leased_step_comes_back() -> None:
    """The check says that it is never, as where the policy says so."""
    texts = [
        check.text
        for stated in ({}, {"policies|0|refund": "never"})
        for check in decide("post", {"charge|leased": 4, **stated}).checks
        if check.code == "refund_not_allowed"
    ]
    assert texts == ["refund of leased steps: never is not stated, or attested with evidence"] * 2
