"""``epsilon standing``: the current state of a book, or its state at an earlier size, read from the book itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import typer

from ledger.cli.book_access import AsJson, AsOf, BookName, book_snapshot
from ledger.cli.terminal_output import examples, print_tables

if TYPE_CHECKING:
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.domain.facts import Account, Charge
    from ledger.mechanisms.loss import Loss
    from ledger.store.snapshot import Snapshot
    from ledger.wire import canonical_json as c

app = typer.Typer(pretty_exceptions_show_locals=False)

_PLACES: Final = 4


@app.command(epilog=examples("standing", "demo/book.sqlite", "demo/book.sqlite --as-of 12 --json"))
def standing(book: BookName, as_of: AsOf = None, *, as_json: AsJson = False) -> None:
    """Show every account and every charge of a book: the current state, or the state at an earlier size."""
    from ledger.audit.log_chunk import FAULTS

    with book_snapshot(book, as_of, damage=FAULTS) as facts:
        accounts = [_account(facts, one) for _, one in sorted(facts.accounts.items())]
        charges = [_charge(one) for one in sorted(facts.charges.values(), key=lambda one: one.index)]
        if as_json:
            typer.echo(json.dumps({"accounts": accounts, "charges": charges, "entries": facts.size}))
            return
        print_tables(
            _table(accounts, "partition", "holder", "share_of_budget", "odometer"),
            _table(charges, "entry", "id", "state", "steps", "steps_posted", "actor"),
        )


def _table(objects: list[c.Object], *names: str) -> tuple[list[str], list[list[c.Json]]]:
    return [name.replace("_", " ") for name in names], [[one[name] for name in names] for one in objects]


def _account(facts: Snapshot | PastSnapshot, one: Account) -> c.Object:
    from ledger.filters import read_rule
    from ledger.wire.exact_numbers import ceil_decimal

    partition = facts.partitions[one.partition]
    rule = read_rule(partition.terms)
    try:
        odometer = ceil_decimal(rule.odometer(one.loss), _PLACES)
    except ArithmeticError:
        # An account of this loss has no finite bound.
        odometer = None
    return {
        "holder": one.holder,
        "odometer": odometer,
        "partition": one.partition,
        "pending": _loss(one.pending),
        "posted": _loss(one.posted),
        "share_of_budget": ceil_decimal(rule.share(one.loss, rule.cap(partition.epsilon)), _PLACES),
    }


def _loss(loss: Loss) -> c.Object:
    # As text, because a sum over many runs may pass the integers that JSON keeps exactly.
    return {"finite": [str(one) for one in loss.finite], "infinite": list(loss.infinite)}


def _charge(one: Charge) -> c.Object:
    return {
        "actor": one.actor,
        "contract": one.contract,
        "deadline": one.deadline,
        "entry": one.index,
        "id": one.id,
        "partitions": list(one.partitions),
        "state": one.state.value,
        "steps": one.steps,
        "steps_posted": one.steps_posted,
    }
