"""The ledger's commands on a book: ``epsilon verify``, ``log`` and ``standing``, and what takes its proofs outside."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ledger.cli import proofs
from ledger.cli.book_access import AsJson, AsOf, BookName, LogFile, book_engine, book_snapshot, book_url, require_size
from ledger.cli.terminal_output import examples, print_tables, progress
from ledger.cli.verbose_option import verbosely
from ledger.command_line.printable_text import json_text, printable, printable_json, say
from ledger.command_line.verbosity import plain
from ledger.domain.command import LEDGER_ACTOR

if TYPE_CHECKING:
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.commands.entry import Entry
    from ledger.domain.charge_record import Charge
    from ledger.domain.facts import Account
    from ledger.domain.gate import Gate
    from ledger.mechanisms.loss import Loss
    from ledger.store.snapshot import Snapshot
    from ledger.wire import canonical_json as c

app = typer.Typer(pretty_exceptions_show_locals=False)

GATES: Final = "epsilon.gate"
"""The group of entry points whose one member is the gate: the ledger itself imports no policy."""
_PLACES: Final = 4


@app.command(
    epilog=examples(
        "verify", "demo/book.sqlite", "demo/book.sqlite --log demo/log.vkey --kept checkpoint-of-may --json"
    )
)
@verbosely
def verify(  # noqa: PLR0913 - one argument an option
    book: BookName,
    log: LogFile = None,
    kept: Annotated[
        list[Path] | None,
        typer.Option(
            help="A checkpoint of this log that you kept outside the book. The log must extend it (consistency proof); "
            "the whole book is replayed all the same. Repeatable."
        ),
    ] = None,
    *,
    signatures: Annotated[
        bool, typer.Option("--signatures/--no-signatures", help="Verify the signature of every entry.")
    ] = True,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions/--no-decisions",
            help="Decide every command again. Without, the command only proves that the tables match the entries, "
            "and verifies no signature of an entry.",
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Replay a book from its first entry, recompute every account, and check every proof and signature."""
    from ledger.audit.replay import verify_book
    from ledger.cli.input_files import need_key, read_kept, trusted_in

    with book_url(book, as_json=as_json) as url:
        key = need_key(log, None if "://" in book else Path(book))
        trust = trusted_in(url, key) if kept else key
        heads = [read_kept(path, trust) for path in kept or ()]
        with progress("replaying") as step:
            finding = verify_book(
                url, key, step, gate=installed_gate(), kept=heads, signatures=signatures, decisions=decisions
            )
        # An attacker who replaces the book's folder replaces the key in it too.
        whose = (
            "" if log is not None else "; the log's key was read from beside the book: compare it with the one you keep"
        )
        if as_json:
            say(json_text({**finding.to_json(), **({} if log is not None else {"log_key_beside_book": True})}))
        else:
            say(f"{finding.in_words()}{whose}")


@app.command(epilog=examples("log", "demo/book.sqlite", "demo/book.sqlite --refused --as-of 12 --json"))
@verbosely
def log(
    book: BookName,
    as_of: AsOf = None,
    *,
    refused: Annotated[bool, typer.Option("--refused", help="Show refusals only, each with every reason.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print whole entries, one JSON object per line.")] = False,
) -> None:
    """List the entries of a book: time, kind, id, actor and outcome."""
    from ledger.commands.entry import Entry
    from ledger.store.snapshot import Log

    entries: list[tuple[int, Entry]] = []
    names = {LEDGER_ACTOR: "this ledger"}
    with book_engine(book) as engine, engine.begin() as connection:
        whole = Log(connection)
        require_size(whole, as_of)
        for index, data in enumerate(Log(connection, as_of)):
            entry = Entry.parse(data)
            if entry.kind == "organisation" and not entry.code.refused:
                names[str(entry.request["organisation"])] = str(entry.request["name"])
            if refused and not entry.code.refused:
                continue
            if as_json:
                exact = entry.to_bytes().decode()
                # A program gets the bytes that the log holds, and a terminal the same value.
                typer.echo(printable_json(exact) if sys.stdout.isatty() else exact)
            else:
                entries.append((index, entry))
        if refused and not as_json:
            say("\n".join(map(printable, _refusals(entries, names))) or "no entry is a refusal")
        elif not as_json:
            print_tables((["entry", "time (UTC)", "what", "id", "sent by", "outcome"], _rows(entries, names)))


@app.command(epilog=examples("standing", "demo/book.sqlite", "demo/book.sqlite --as-of 12 --json"))
@verbosely
def standing(book: BookName, as_of: AsOf = None, *, as_json: AsJson = False) -> None:
    """Show every account and every charge of a book: the current state, or the state at an earlier size."""
    from ledger.audit.log_chunk import FAULTS
    from ledger.organisation_lineage.organisation_mentions import OrganisationMentions

    with book_snapshot(book, as_of, damage=FAULTS) as facts:
        accounts = [_account(facts, account) for _, account in sorted(facts.accounts.items())]
        charges = [_charge(charge) for charge in sorted(facts.charges.values(), key=lambda charge: charge.index)]
        mentions = OrganisationMentions(
            {organisation.did: organisation.name for organisation in facts.organisations.values()}
        )
        if as_json:
            say(json_text({"accounts": accounts, "charges": charges, "entries": facts.size}))
            return
        print_tables(
            _table([*map(_for_people, accounts)], "partition", "account_of", "used_of_the_budget", "ε_at_most"),
            _table(
                [{**charge, "charged_by": mentions.text(str(charge["actor"]))} for charge in charges],
                *("entry", "id", "state", "steps", "steps_posted", "charged_by"),
            ),
        )


def installed_gate() -> Gate | None:
    """The gate installed beside this program; None if there is none. Raises: ValueError, if there are several."""
    gates = list(entry_points(group=GATES))
    if len(gates) > 1:
        raise ValueError(
            f"several gates are installed: {', '.join(sorted(entry_point.value for entry_point in gates))}"
        )
    gate: Gate | None = gates[0].load() if gates else None
    return gate


def _rows(entries: Sequence[tuple[int, Entry]], names: Mapping[str, str]) -> Iterator[list[str]]:
    """A row for each entry, with the organisation by its name."""
    from ledger.organisation_lineage.organisation_mentions import OrganisationMentions

    mentions = OrganisationMentions(names)
    for index, entry in entries:
        yield [str(index), _utc(entry.time), entry.kind, entry.id, mentions.text(entry.actor), entry.code.word]


def _refusals(shown: Sequence[tuple[int, Entry]], names: Mapping[str, str]) -> Iterator[str]:
    """Each refusal on a line, and under it a line for each reason: sentences do not fit the columns of a table."""
    for row, (_, entry) in zip(_rows(shown, names), shown, strict=True):
        index, time, kind, id_, actor, outcome = row
        yield f"entry {index}, {time} UTC: {kind} {id_} of {actor}: {outcome}"
        yield from (f"  {reason}" for reason in _reasons(entry))


def _reasons(entry: Entry) -> list[str]:
    """Every check of a refusal that failed, in order."""
    checks: Any = entry.body.get("checks", [])
    return [f"{check['code']}: {plain(check['text'])}" for check in checks if not check["passed"]]


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _table(objects: list[c.Object], *names: str) -> tuple[list[str], list[list[c.Json]]]:
    return [name.replace("_", " ") for name in names], [[record[name] for name in names] for record in objects]


def _for_people(account: c.Object) -> c.Object:
    from ledger.wire.exact_numbers import ceil_decimal

    used = f"{ceil_decimal(100 * Fraction(str(account['share_of_budget'])), 1)} %"
    return {**account, "account_of": account["name"], "used_of_the_budget": used, "ε_at_most": account["odometer"]}


def _account(facts: Snapshot | PastSnapshot, account: Account) -> c.Object:
    from ledger.commands.runs.account_epsilon import account_epsilon
    from ledger.filters import read_rule
    from ledger.organisation_lineage.holder_names import holder_name
    from ledger.wire.exact_numbers import ceil_decimal

    partition = facts.partitions[account.partition]
    rule = read_rule(partition.terms)
    epsilon = account_epsilon(facts, account)
    return {
        "bound": epsilon.bound,
        "holder": account.holder,
        "name": holder_name(facts, account.holder),
        # An account may have no finite bound.
        "odometer": None if epsilon.epsilon is None else ceil_decimal(epsilon.epsilon, _PLACES),
        "partition": account.partition,
        "pending": _loss(account.pending),
        "posted": _loss(account.posted),
        "share_of_budget": ceil_decimal(rule.share(account.loss, rule.cap(partition.epsilon)), _PLACES),
    }


def _loss(loss: Loss) -> c.Object:
    # As text, because a sum over many runs may exceed the integers that JSON represents exactly.
    return {"finite": [str(units) for units in loss.finite], "infinite": list(loss.infinite)}


def _charge(charge: Charge) -> c.Object:
    return {
        "actor": charge.actor,
        "contract": charge.contract,
        "deadline": charge.deadline,
        "entry": charge.index,
        "id": charge.id,
        "partitions": list(charge.partitions),
        "state": charge.state.value,
        "steps": charge.steps,
        "steps_posted": charge.steps_posted,
    }


app.registered_commands.extend(proofs.app.registered_commands)
