"""The part of an account's loss that counts against its caps, and which accounts exceed a cap (are frozen).

An account keeps every loss it ever had. A decree of an SRO resets it: against its caps it then counts without what was
settled when the last decree on it was entered; what was pending then goes on counting. Nothing recorded changes by a
decree. What it lets through is no longer under the account's promise: of the global account this breaks the only
unconditional one, and every report of the account says so. An account over its cap takes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.facts import Account, Facts
from ledger.filters import Cap, read_rule
from ledger.mechanisms.loss import Loss


def counted_loss(facts: Facts, account: Account) -> Loss:
    """The loss that counts against an account's caps: pending in full, and posted since the last decree."""
    forgiven = facts.forgiven.get((account.partition, account.holder))
    return account.loss if forgiven is None else account.loss - forgiven


@dataclass(frozen=True, slots=True)
class Frozen:
    """An account over its cap.

    Attributes:
        excess: the share of capacity used beyond 1, exactly; None where no order holds a finite loss.
    """

    partition: str
    holder: str
    excess: Fraction | None


def frozen_accounts(facts: Facts, accounts: Iterable[Account], caps: Mapping[str, Cap]) -> list[Frozen]:
    """Which accounts, as they are or as they would be, are over, where a cap is given for their partition.

    Pending counts in full. A frozen account promises nothing for the past: what was charged before under other
    caps composes as it was, and that is what holds.
    """
    frozen = []
    for account in accounts:
        cap = caps.get(account.partition)
        rule = read_rule(facts.partitions[account.partition].terms)
        if cap is None or rule.admits(counted_loss(facts, account), cap):
            continue
        excess = rule.share(counted_loss(facts, account), cap) - 1
        frozen.append(Frozen(account.partition, account.holder, excess if excess > 0 else None))
    return frozen
