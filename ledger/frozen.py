"""Frozen accounts: those over their cap, which take nothing more, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ledger.decrees import standing
from ledger.registry import Account, Facts
from ledger.rules import Cap, read_rule


@dataclass(frozen=True, slots=True)
class Frozen:
    """An account over its cap.

    Attributes:
        excess: the share of capacity used beyond 1, exactly; None where no order holds a finite loss.
    """

    partition: str
    holder: str
    excess: Fraction | None


def frozen(facts: Facts, holder: str, caps: Mapping[str, Cap]) -> list[Frozen]:
    """Which accounts of a holder are over, where a cap is given for their partition.

    Pending counts in full. A frozen account promises nothing for the past: what was charged before under other
    caps composes as it was, and that is what holds.
    """
    return over(facts, facts.accounts_of(holder), caps)


def over(facts: Facts, accounts: Iterable[Account], caps: Mapping[str, Cap]) -> list[Frozen]:
    """The same, of accounts as they are or as they would be."""
    found = []
    for account in accounts:
        cap = caps.get(account.partition)
        rule = read_rule(facts.partitions[account.partition].terms)
        if cap is None or rule.admits(standing(facts, account), cap):
            continue
        excess = rule.share(standing(facts, account), cap) - 1
        found.append(Frozen(account.partition, account.holder, excess if excess > 0 else None))
    return found
