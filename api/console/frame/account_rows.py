"""Rows of accounts: what the API says of each, as the first cells of one row of a table."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from api.console.frame import cells
from api.console.frame.cells import Cell
from api.wire.account_answers import Account

ACCOUNT_COLUMNS: Final = ("Whose", "Used", "Of what binds", "Runs left", "ε so far", "at δ", "Proven by", "Closed")


def account_cells(account: Account, delta: Fraction) -> tuple[Cell, ...]:
    """Its holder, its share of what binds, the runs that fit, and its ε at the partition's δ with what proves it."""
    return (
        Cell(account.name, exact=account.holder),
        cells.share(account.share.share, str(account.share)),
        cells.text(account.binding or "nothing binds"),
        cells.count(account.runs_like_the_last),
        cells.loss(account.odometer),
        cells.bound(delta),
        cells.text(account.bound),
        cells.text(account.closed or "–"),
    )
