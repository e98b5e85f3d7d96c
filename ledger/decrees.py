"""Decrees: what an SRO has let an account begin anew from. Nothing recorded changes by one.

An account keeps every loss it ever had. Against its caps it stands at that loss without what was settled when the
last decree on it was entered; what was pending then goes on counting. What a decree lets through is no longer under
the account's promise: of the global account this breaks the only unconditional one, and whoever tells it says so.
"""

from __future__ import annotations

from ledger.loss import Loss
from ledger.registry import Account, Facts


def standing(facts: Facts, account: Account) -> Loss:
    """What counts of an account against its caps: pending in full, and posted since the last decree."""
    forgiven = facts.forgiven.get((account.partition, account.holder))
    return account.loss if forgiven is None else account.loss - forgiven


def decreed(facts: Facts, partition: str, holder: str) -> bool:
    """Whether an account was ever reset, so that its budget is no bound on what its holder knows."""
    return (partition, holder) in facts.forgiven
