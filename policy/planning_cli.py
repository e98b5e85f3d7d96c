"""Commands for people who must decide: ``epsilon policy impact`` and ``epsilon plan``. They only read a book."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from ledger.snapshot import Snapshot
    from policy.question import Question

app = typer.Typer(pretty_exceptions_show_locals=False)
policy = typer.Typer(no_args_is_help=True, help="What a policy would change, before it is published.")
plan = typer.Typer(no_args_is_help=True, help="What fits a budget, and what mergers and coalitions would make of it.")
app.add_typer(policy, name="policy")
app.add_typer(plan, name="plan")

MALFORMED: Final = 2
NOT_FOUND: Final = 4
REFUSED: Final = 3
_DAY_MS: Final = 86_400_000
_PENDING_MAX: Final = 100_000
_EVER: Final = 2**62

_Book = Annotated[str, typer.Argument(metavar="BOOK", help="The book: an SQLite file, or a PostgreSQL URL.")]
_AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs instead of sentences.")]
_At = Annotated[str, typer.Option(help="The time to decide at, as 2026-01-01T00:00:00Z; now if not given.")]


@policy.callback()
def _policy() -> None:
    """Read a book and a policy."""


@plan.callback()
def _plan() -> None:
    """Read a book and plan."""


@policy.command(
    epilog="""
Examples:

  epsilon policy impact demo/book.sqlite next-policy.json

  epsilon policy impact demo/book.sqlite next-policy.yaml --json
"""
)
def impact(
    book: _Book,
    document: Annotated[Path, typer.Argument(metavar="POLICY", help="The next version: JSON or YAML.")],
    at: _At = "",
    *,
    as_json: _AsJson = False,
) -> None:
    """Say which datasets, contracts, partitions and accounts a policy would change or freeze. Nothing is recorded."""
    from policy.impact import impact as impact_of
    from policy.telling import impact_lines

    with _opened(book) as facts:
        found = impact_of(facts, document.read_bytes(), _moment(at), facts.due(_EVER, _PENDING_MAX))
    _tell(found.to_json(), impact_lines(found), as_json=as_json)


@policy.command(
    epilog="""
Examples:

  epsilon policy breaches demo/book.sqlite

  epsilon policy breaches demo/book.sqlite --json

Exits with 3 if any account is over its cap.
"""
)
def breaches(book: _Book, at: _At = "", *, as_json: _AsJson = False) -> None:
    """Say which accounts are over the cap that binds them, and by how much: they take nothing until that is mended."""
    from policy.breaches import breaches as found_in
    from policy.telling import breach_lines

    with _opened(book) as facts:
        found = list(found_in(facts, _moment(at)))
    _tell({"breaches": [one.to_json() for one in found]}, breach_lines(found), as_json=as_json)
    if found:
        raise typer.Exit(REFUSED)


@plan.command(
    epilog="""
Examples:

  epsilon plan run demo/book.sqlite charge.json --actor did:web:bank-a.example

  epsilon plan run demo/book.sqlite charge.json --actor did:web:bank-a.example --epochs 20 --json

Exits with 0 if the run would be charged, and with 3 if it would be refused.
"""
)
def run(  # noqa: PLR0913, PLR0917 - each an option
    book: _Book,
    charge: Annotated[
        Path,
        typer.Argument(metavar="CHARGE", help="JSON with contract, partitions and plan, as `epsilon quote` takes it."),
    ],
    actor: Annotated[str, typer.Option(help="The organisation that would ask.")],
    epochs: Annotated[str, typer.Option(help="Plan for so many epochs, instead of the plan's steps.")] = "",
    days: Annotated[int, typer.Option(min=1, max=36_500, help="The days up to now that make the present rate.")] = 30,
    at: _At = "",
    *,
    as_json: _AsJson = False,
) -> None:
    """Say what a run would get, how much of it fits, what would pass instead, and how long the budget lasts."""
    from policy.plan_report import report
    from policy.telling import run_lines

    now = _moment(at)
    with _opened(book) as facts:
        question = _question(facts, charge, actor, epochs, now)
        since = now - days * _DAY_MS
        told = report(question, _first(facts, since), since)
        permit = question.decision.permit
    _tell(told, run_lines(told), as_json=as_json)
    if not permit:
        raise typer.Exit(REFUSED)


@plan.command(
    epilog="""
Examples:

  epsilon plan merger demo/book.sqlite did:web:bank-a.example did:web:bank-b.example
"""
)
def merger(
    book: _Book,
    organisations: Annotated[list[str], typer.Argument(metavar="DID...", help="Two or more organisations.")],
    at: _At = "",
    *,
    as_json: _AsJson = False,
) -> None:
    """Say what merging would make of every account, which it would freeze, and by how much."""
    from policy.joining import joined
    from policy.telling import merger_lines

    with _opened(book) as facts:
        for did in organisations:
            if did not in facts.organisations:
                _fail(f"{did} is not registered", NOT_FOUND)
        found = joined(facts, organisations, _moment(at))
    _tell({"accounts": [one.to_json() for one in found]}, merger_lines(found), as_json=as_json)


@plan.command(
    epilog="""
Examples:

  epsilon plan coalitions demo/book.sqlite

  epsilon plan coalitions demo/book.sqlite --partition did:web:hospital.example/scans/2026-q4 --epsilon 5
"""
)
def coalitions(
    book: _Book,
    partition: Annotated[list[str] | None, typer.Option(help="A partition; all open ones if none is given.")] = None,
    epsilon: Annotated[str, typer.Option(help="The cap, at each partition's δ; each lineage's if not given.")] = "",
    at: _At = "",
    *,
    as_json: _AsJson = False,
) -> None:
    """List the smallest coalitions of consumers that together would exceed a cap, and how far was searched."""
    from ledger.units import parse_positive
    from policy.coalitions import coalitions as coalitions_of
    from policy.telling import coalition_lines

    with _opened(book) as facts:
        for ref in partition or ():
            if ref not in facts.partitions:
                _fail(f"there is no partition {ref}", NOT_FOUND)
        cap = parse_positive(epsilon, "--epsilon") if epsilon else None
        found = coalitions_of(facts, _moment(at), partition, cap)
    _tell({"partitions": [one.to_json() for one in found]}, coalition_lines(found), as_json=as_json)


def _question(facts: Snapshot, charge: Path, actor: str, epochs: str, now: int) -> Question:
    """Raises: Malformed."""
    from dataclasses import replace

    from ledger import canonical as c
    from ledger.commands import parse_ref
    from ledger.malformed import Malformed
    from ledger.plan import Plan, parse_plan
    from ledger.units import parse_positive
    from policy.planning import for_epochs
    from policy.question import Question, Run

    value = c.parse(charge.read_bytes(), 65_535, "charge")
    if not isinstance(value, dict) or not {"contract", "partitions", "plan"} <= set(value):
        raise Malformed("charge", "must be an object with contract, partitions and plan")
    refs = c.strings(value["partitions"], "partitions", 16)
    asked = Run(
        actor=c.did(actor, "--actor"),
        contract=c.sha256(value["contract"], "contract"),
        partitions=tuple(parse_ref(ref, f"partitions[{place}]") for place, ref in enumerate(refs)),
        plan=parse_plan(value["plan"]),
    )
    for ref in asked.partitions:
        if ref not in facts.partitions:
            _fail(f"there is no partition {ref}", NOT_FOUND)
    if asked.contract not in facts.contracts:
        _fail(f"there is no contract {asked.contract}", NOT_FOUND)
    if asked.actor not in facts.organisations:
        _fail(f"{asked.actor} is not registered", NOT_FOUND)
    if epochs:
        if not isinstance(asked.plan, Plan):
            raise Malformed("--epochs", "is for a plan of kind 'dp_sgd'")
        asked = replace(asked, plan=for_epochs(asked.plan, parse_positive(epochs, "--epochs")))
    return Question(facts, asked, now)


def _first(facts: Snapshot, since: int) -> int:
    """The index of the first entry at or after a time; entries are in order of time."""
    from ledger.entries import Entry

    return bisect_left(range(facts.size), since, key=lambda index: Entry.parse(facts.entry(index)).time)


def _moment(at: str) -> int:
    from policy.reading import parse_time

    return parse_time(at, "--at") if at else time.time_ns() // 1_000_000


@contextmanager
def _opened(book: str) -> Iterator[Snapshot]:
    """A book to read; faults are told in one sentence each."""
    from sqlalchemy.exc import DatabaseError

    from ledger.engines import engine_of, url_of
    from ledger.malformed import Malformed
    from ledger.snapshot import Snapshot

    if "://" not in book and not Path(book).is_file():
        _fail(f"there is no book at {book}", NOT_FOUND)
    try:
        engine = engine_of(url_of(book), writes=False)
        try:
            with engine.begin() as connection:
                yield Snapshot(connection)
        finally:
            engine.dispose()
    except DatabaseError as fault:
        _fail(f"{book} is not a book: {fault.orig}", MALFORMED)
    except (Malformed, OSError) as fault:
        _fail(str(fault), MALFORMED)


def _fail(sentence: str, code: int) -> None:
    typer.echo(sentence, err=True)
    raise typer.Exit(code)


def _tell(value: Any, lines: Iterator[str], *, as_json: bool) -> None:  # noqa: ANN401 - JSON
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False))
        return
    for line in lines:
        typer.echo(line)
