"""Everyone's account as one of its consumers is shown it: its own part exactly, that of all others rounded and joined.

The exact sum less one's own part, divided by public prices, is a competitor's plan, as it happens. So what others have
posted and have pending is one amount, in steps of a twentieth of the capacity at each coordinate, rounded up: it is
never less than what counts. A policy may say ``shared_accounts: exact``.
"""

from __future__ import annotations

from typing import Final

from ledger.domain.facts import GLOBAL, Account, Facts, Partition
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from policy.decisions.documents_in_force import binding
from policy.planning.account_caps import empty_account

STEPS: Final = 20
"""Into so many steps the capacity is divided."""


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
    # After a decree less may count for everyone than for one.
    finite = (max(0, all_ - mine) for all_, mine in zip(whole.loss.finite, own.loss.finite, strict=True))
    infinite = (int(all_ > mine) for all_, mine in zip(whole.loss.infinite, own.loss.infinite, strict=True))
    others = Loss(tuple(map(_rounded_up, finite, capacity)), tuple(infinite))
    return Account(partition.ref, GLOBAL, own.posted + others, own.pending)


def _rounded_up(loss: int, capacity: int | None) -> int:
    """To whole steps; where a coordinate has no capacity of its own, to a power of two."""
    if not capacity:
        return (1 << loss.bit_length()) if loss else 0
    step = -(-capacity // STEPS)
    return -(-loss // step) * step
