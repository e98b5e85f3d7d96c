"""Everyone's account as one of its consumers is shown it, and the state with it.

What others have posted and have pending is one amount, rounded up as :mod:`ledger.accounts.shared_account` does. A
policy may say ``shared_accounts: exact``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledger.accounts.shared_account import others_rounded_up
from ledger.domain.facts import GLOBAL, Account, Facts, Partition
from ledger.filters import read_rule
from policy.decisions.documents_in_force import binding
from policy.planning.account_caps import empty_account
from policy.planning.hypothetical_facts import HypotheticalFacts


def is_rounded(facts: Facts, partition: Partition, now: int) -> bool:
    """Whether consumers are shown everyone's account rounded: unless the policy in force says otherwise."""
    binds = binding(facts, partition, now)
    return binds is None or binds.policy.shared_accounts == "rounded"


def rounded_account(facts: Facts, partition: Partition, own_holder: str) -> Account:
    """Everyone's account as the holder of another one is shown it."""
    empty = empty_account(partition, GLOBAL)
    whole = facts.accounts.get((partition.ref, GLOBAL), empty)
    own = facts.accounts.get((partition.ref, own_holder), empty)
    capacity = read_rule(partition.terms).cap(partition.epsilon).capacity
    others = others_rounded_up(whole.loss, own.loss, capacity)
    return Account(partition.ref, GLOBAL, own.posted + others, own.pending)


def facts_as_shown(facts: Facts, partitions: Iterable[Partition], now: int, own_holder: str) -> Facts:
    """The state with everyone's account of these partitions as a holder is shown it: what fits there fits in truth."""
    rounded = {
        (one.ref, GLOBAL): rounded_account(facts, one, own_holder) for one in partitions if is_rounded(facts, one, now)
    }
    return HypotheticalFacts(facts, accounts=rounded) if rounded else facts
