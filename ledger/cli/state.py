"""``epsilon standing``: the current state of a book, or its state at an earlier size, read from the book itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.command_errors import book_errors_reported, failure
from ledger.cli.proofs import AsJson, BookName
from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.domain.facts import Account, Charge
    from ledger.mechanisms.loss import Loss
    from ledger.store.snapshot import Snapshot
    from ledger.wire import canonical_json as c

app = typer.Typer(pretty_exceptions_show_locals=False)

AsOf = Annotated[
    int | None,
    typer.Option("--as-of", metavar="SIZE", min=0, help="Use the first SIZE entries of the log only; default: all."),
]
_EXAMPLES: Final = """
Examples:

  epsilon standing demo/book.sqlite

  epsilon standing demo/book.sqlite --as-of 12 --json
"""
_PLACES: Final = 4


@app.command(epilog=_EXAMPLES)
def standing(book: BookName, as_of: AsOf = None, *, as_json: AsJson = False) -> None:
    """Show every account and every charge of a book: the current state, or the state at an earlier size."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    with book_errors_reported(book) as url, _facts(url, as_of) as facts:
        accounts = [_account(facts, one) for _, one in sorted(facts.accounts.items())]
        charges = [_charge(one) for one in sorted(facts.charges.values(), key=lambda one: one.index)]
        if as_json:
            typer.echo(json.dumps({"accounts": accounts, "charges": charges, "entries": facts.size}))
            return
        console = Console()
        with console.capture() as told:
            for rows, names in (
                (accounts, ("partition", "holder", "share_of_budget", "odometer")),
                (charges, ("entry", "id", "state", "steps", "steps_posted", "actor")),
            ):
                table = Table()
                for name in names:
                    table.add_column(name.replace("_", " "), overflow="fold")
                for row in rows:
                    table.add_row(*(Text("" if row[name] is None else str(row[name])) for name in names))
                console.print(table)
        typer.echo(told.get(), nl=False)


@contextmanager
def _facts(url: str, as_of: int | None) -> Iterator[Snapshot | PastSnapshot]:
    """A snapshot of the book at one size. Exits where a row cannot be read: verification finds the damage."""
    from ledger.audit.log_chunk import FAULTS
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.engine import engine_of, name_of
    from ledger.store.snapshot import Snapshot

    engine = engine_of(url, writes=False)
    try:
        with engine.begin() as connection:
            now = Snapshot(connection)
            if as_of is not None and as_of > now.size:
                raise failure(f"the log has {now.size} entries, fewer than {as_of}", ExitCode.NOT_FOUND)
            # No proof is made from it, so the log's key is not needed.
            yield now if as_of is None else PastSnapshot(connection, as_of, lambda tree: tree.root().hex())
    except FAULTS as fault:
        told = f"{name_of(url)} cannot be read ({fault}): run 'epsilon verify' to find the error"
        raise failure(told, ExitCode.VERIFICATION_FAILED) from None
    finally:
        engine.dispose()


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
