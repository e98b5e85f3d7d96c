"""``epsilon plan merger``, ``transfer``, ``publication``, ``coalitions``: read-only previews of lineage events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.book_access import AsJson, BookName, book_snapshot
from ledger.cli.command_errors import failure
from ledger.cli.terminal_output import examples
from ledger.cli.verbose_option import verbosely
from ledger.domain.exit_codes import ExitCode
from policy.cli.answers import At, moment, print_answer

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

app = typer.Typer(pretty_exceptions_show_locals=False)

_Charge = Annotated[str, typer.Argument(metavar="ID", help="The charge of the model.")]
_Giver = Annotated[str, typer.Option(metavar="DID", help="Who has the model; default: who was charged for it.")]


@app.command(
    epilog=examples(
        "plan merger",
        "demo/book.sqlite did:web:bank-a.example did:web:bank-b.example",
        "demo/book.sqlite did:web:bank-a.example did:web:bank-b.example --json",
    )
)
@verbosely
def merger(
    book: BookName,
    organisations: Annotated[list[str], typer.Argument(metavar="DID...", help="Two or more organisations.")],
    at: At = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Preview the effect of a merger on all budgets."""
    from policy.cli.text_report import merger_lines
    from policy.planning.merger_impact import merged_accounts

    with book_snapshot(book) as facts:
        for did in organisations:
            if did not in facts.organisations:
                raise failure(f"{did} is not registered", ExitCode.NOT_FOUND)
        merged = merged_accounts(facts, organisations, moment(at))
    print_answer({"accounts": [account.to_json() for account in merged]}, merger_lines(merged), as_json=as_json)


@app.command(
    epilog=examples(
        "plan coalitions",
        "demo/book.sqlite",
        "demo/book.sqlite --partition did:web:hospital.example/scans/2026-q4 --epsilon 5",
    )
)
@verbosely
def coalitions(
    book: BookName,
    partition: Annotated[list[str] | None, typer.Option(help="A partition; all open ones if omitted.")] = None,
    epsilon: Annotated[str, typer.Option(help="The cap, at each partition's δ; the lineage caps if omitted.")] = "",
    at: At = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List the smallest coalitions of consumers that together would exceed a cap."""
    from ledger.wire.exact_numbers import parse_positive
    from policy.cli.text_report import coalition_lines
    from policy.planning.coalition_search import coalitions as coalitions_of

    with book_snapshot(book) as facts:
        for ref in partition or ():
            if ref not in facts.partitions:
                raise failure(f"there is no partition {ref}", ExitCode.NOT_FOUND)
        cap = parse_positive(epsilon, "--epsilon") if epsilon else None
        searches = coalitions_of(facts, moment(at), partition, cap)
    print_answer(
        {"partitions": [partition.to_json() for partition in searches]}, coalition_lines(searches), as_json=as_json
    )


@app.command(
    epilog=examples(
        "plan transfer",
        "demo/book.sqlite run-1 did:web:bank-b.example",
        "demo/book.sqlite run-1 did:web:bank-b.example --json",
    )
)
@verbosely
def transfer(  # noqa: PLR0913 - each an argument
    book: BookName,
    charge: _Charge,
    recipient: Annotated[str, typer.Argument(metavar="DID", help="Who would get the model.")],
    giver: _Giver = "",
    at: At = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Preview which accounts grow if a model is handed over, and by how much."""
    _preview(book, "transfer", {"charge": charge, "recipient": recipient, **_giver_field(giver)}, at, as_json=as_json)


@app.command(epilog=examples("plan publication", "demo/book.sqlite run-1", "demo/book.sqlite run-1 --json"))
@verbosely
def publication(book: BookName, charge: _Charge, giver: _Giver = "", at: At = "", *, as_json: AsJson = False) -> None:
    """Preview which accounts grow if a model is published, and by how much."""
    _preview(book, "publication", {"charge": charge, **_giver_field(giver)}, at, as_json=as_json)


def _giver_field(giver: str) -> Object:
    return {"giver": giver} if giver else {}


def _preview(book: str, kind: str, body: Object, at: str, *, as_json: bool) -> None:
    from ledger.domain.decision import Rejected
    from policy.cli.text_report import exposure_lines
    from policy.planning.lineage_impact import exposure_changes

    with book_snapshot(book) as facts:
        try:
            changes = exposure_changes(facts, kind, body, moment(at))
        except Rejected as refusal:
            raise failure(refusal.decided.detail, refusal.decided.code.exit_code) from None
    print_answer({"accounts": [account.to_json() for account in changes]}, exposure_lines(changes), as_json=as_json)
