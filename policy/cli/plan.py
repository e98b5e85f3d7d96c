"""The planning commands: ``epsilon policy impact``, ``epsilon policy breaches`` and ``epsilon plan``; all read-only."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.book_access import AsJson, AsOf, BookName, book_engine, book_snapshot
from ledger.cli.command_errors import errors_reported, failure
from ledger.cli.terminal_output import examples
from ledger.cli.verbose_option import verbosely
from ledger.domain.exit_codes import ExitCode
from policy.cli.answers import At, file_bytes, moment, print_answer
from policy.cli.lineage import app as lineage
from policy.cli.planned_changes import Changes, Epochs, Noise, Partitions, Steps, passing_lines

if TYPE_CHECKING:
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.domain.range_names import OpenPartitions
    from ledger.store.snapshot import Snapshot
    from ledger.wire.canonical_json import Object
    from policy.planning.what_if import WhatIf

app = typer.Typer(pretty_exceptions_show_locals=False)
policy = typer.Typer(no_args_is_help=True)
plan = typer.Typer(no_args_is_help=True, help="Preview runs, mergers and coalitions; nothing is recorded.")
app.add_typer(policy, name="policy")
app.add_typer(plan, name="plan")
plan.registered_commands.extend(lineage.registered_commands)

DAYS: Final = 30
"""The default number of past days whose rate of charges projects a budget's end."""
_DAY_MS: Final = 86_400_000
_PENDING_MAX: Final = 100_000
_EVER: Final = 2**62

_Policy = Annotated[
    Path | None, typer.Option("--policy", help="Evaluate as if this policy had always been the only one of its domain.")
]


@policy.command(
    epilog=examples("policy impact", "demo/book.sqlite next-policy.json", "demo/book.sqlite next-policy.yaml --json")
)
@verbosely
def impact(
    book: BookName,
    document: Annotated[Path, typer.Argument(metavar="POLICY", help="The next version: JSON or YAML.")],
    at: At = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Preview which datasets, contracts, partitions and accounts a new policy version would change or freeze."""
    from ledger.store.snapshot import Snapshot
    from policy.cli.text_report import impact_lines
    from policy.planning.policy_impact import impact as impact_of
    from policy.planning.usable_caps import declared_load

    with book_engine(book) as engine, engine.begin() as connection:
        facts = Snapshot(connection)
        proposed = file_bytes(document, "policy")
        pending, declared = facts.due(_EVER, _PENDING_MAX), declared_load(facts.entry)
        report = impact_of(facts, proposed, moment(at), pending, declared)
    print_answer(report.to_json(), impact_lines(report), as_json=as_json)


@policy.command(
    epilog=examples(
        "policy breaches",
        "demo/book.sqlite",
        "demo/book.sqlite --json",
        note="Exits with 3 if any account is over its cap.",
    )
)
@verbosely
def breaches(book: BookName, at: At = "", *, as_json: AsJson = False) -> None:
    """List the accounts that are over their cap, and by how much; such an account is frozen and admits no charge."""
    from policy.cli.text_report import breach_lines
    from policy.planning.account_caps import accounts_over_cap

    with book_snapshot(book) as facts:
        over = list(accounts_over_cap(facts, moment(at)))
    print_answer(
        {"breaches": [breach.to_json() for breach in over]}, breach_lines(over), as_json=as_json, refused=bool(over)
    )


@plan.command(
    epilog=examples(
        "plan run",
        "demo/book.sqlite charge.json --actor did:web:bank-a.example",
        "demo/book.sqlite charge.json --actor did:web:bank-a.example --epochs 20 --json",
        note="Exits with 0 if the run would be charged, and with 3 if it would be refused.",
    )
)
@verbosely
def run(  # noqa: PLR0913, PLR0917 - each an option
    book: BookName,
    charge: Annotated[
        Path,
        typer.Argument(metavar="CHARGE", help="JSON with contract, partitions and plan, as `epsilon quote` takes it."),
    ],
    contract: Annotated[str, typer.Option(help="The contract's file or SHA-256, if CHARGE names none.")] = "",
    actor: Annotated[str, typer.Option(help="Who would make the charge; a service knows it.")] = "",
    epochs: Epochs = "",
    noise: Noise = "",
    steps: Steps = None,
    partition: Partitions = None,
    days: Annotated[
        int, typer.Option(min=1, max=36_500, help="Project from the charges of this many past days.")
    ] = DAYS,
    at: At = "",
    as_of: AsOf = None,
    document: _Policy = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Evaluate a planned run: the decision, what fits, what would be admitted instead, how long the budget lasts."""
    from ledger.domain.range_names import with_ranges
    from policy.cli.text_report import run_lines
    from policy.planning.plan_report import first_since, report

    changes = Changes(epochs, noise, steps, tuple(partition or ()))
    with book_snapshot(book, as_of) as facts:
        now = moment(at)
        named = changes.applied(_body(charge, contract))
        body = with_ranges(named, _open_partitions(facts, now))
        question = _under(_question(facts, body, actor, now), document)
        since = now - days * _DAY_MS
        plan_report = report(question, first_since(facts.size, facts.times, since), since)
    options = run_options(contract=contract, actor=actor, days=days, at=at, as_of=as_of, document=document)
    typed = ("plan", "run", book, charge)
    lines = chain(run_lines(plan_report), passing_lines(plan_report.advice, named, changes, typed, options))
    print_answer(plan_report.to_json(), lines, as_json=as_json, refused=not plan_report.decision.permit)


def run_options(**options: object) -> dict[str, object]:
    """The options of ``epsilon plan run`` that do not change the run, as typed; an omitted option is None."""
    renamed = {"document": "--policy", "as_of": "--as-of"}
    left_out = {**dict.fromkeys(("at", "actor", "contract"), ""), "days": DAYS}
    return {
        renamed.get(name, f"--{name}"): None if left_out.get(name) == value else value
        for name, value in options.items()
    }


@plan.command(
    epilog=examples(
        "plan again",
        "demo/book.sqlite run-1",
        "demo/book.sqlite run-1 --policy next-policy.json --json",
        note="Exits with 0 if the run would be charged, and with 3 if it would be refused.",
    )
)
@verbosely
def again(
    book: BookName,
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a recorded charge, admitted or refused.")],
    as_of: AsOf = None,
    document: _Policy = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Re-evaluate a past charge with the state and policy in force then, or with another policy."""
    from ledger.commands.entry import Entry
    from ledger.commands.runs.charge import CHARGE
    from policy.cli.text_report import decision_lines
    from policy.planning.what_if import PlannedRun, WhatIf

    with book_snapshot(book) as now:
        index = now.entry_index(name)
        entry = None if index is None else Entry.parse(now.entry(index))
    if entry is None or entry.kind != "charge":
        raise failure(f"there is no charge {name}", ExitCode.NOT_FOUND)
    with book_snapshot(book, index if as_of is None else as_of) as facts:
        run = PlannedRun.of(entry.actor, CHARGE.read_body(entry.command))
        decision = _under(WhatIf(facts, run, entry.time, exact=True), document).decision
    recorded = entry.code.word
    lines = chain((f"Recorded outcome: {recorded}. Re-evaluated:",), decision_lines(decision))
    print_answer(
        {"decision": decision.to_json(), "recorded": recorded}, lines, as_json=as_json, refused=not decision.permit
    )


@plan.command(epilog=examples("plan prices", "partition.json", "partition.json --json"))
@verbosely
def prices(
    partition: Annotated[
        Path,
        typer.Argument(metavar="PARTITION", help="The file that `epsilon dataset open-partition` takes."),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """List prices for a partition with the rule catalogue, each with the runs that it would admit."""
    from ledger.commands.registration.partition import OpenPartition, opening_of
    from ledger.domain.decision import Rejected
    from ledger.filters.catalogue_prices import corners
    from ledger.wire import canonical_json as c
    from ledger.wire.malformed import Malformed
    from ledger.wire.records import convert
    from policy.cli.text_report import price_lines

    with errors_reported():
        body = convert(OpenPartition, c.parse(file_bytes(partition, "partition"), 65_535, "partition"), "partition")
        if body.rule != "catalogue":
            raise Malformed("partition.rule", f"must be 'catalogue', which has prices to choose, and is '{body.rule}'")
        try:
            offers = corners(opening_of(body, body.epsilon))
        except Rejected as refusal:
            raise Malformed("", refusal.decided.detail) from None
    print_answer({"prices": [offer.to_json() for offer in offers]}, price_lines(offers), as_json=as_json)


def _under(question: WhatIf, document: Path | None) -> WhatIf:
    """Raises: Malformed, OSError."""
    from policy.planning.hypothetical_facts import with_policy_throughout

    if document is None:
        return question
    return replace(question, facts=with_policy_throughout(question.facts, file_bytes(document, "policy"))[1])


def _body(charge: Path, contract: str) -> Object:
    """A charge's body. Raises: Malformed, OSError."""
    from ledger.wire import canonical_json as c

    body = c.members(c.parse(file_bytes(charge, "charge"), 65_535, "charge"), "charge")
    if contract:
        path = Path(contract)
        body = {**body, "contract": c.digest(file_bytes(path, "--contract")) if path.is_file() else contract}
    return body


def _open_partitions(facts: Snapshot | PastSnapshot, now: int) -> OpenPartitions:
    """The partitions of a book at a time (ms), to resolve the ranges that a charge names."""
    from ledger.domain.facts import GLOBAL
    from ledger.domain.range_names import Opened, OpenPartitions
    from policy.planning.streams.slice_status import CLOSED, slice_status

    def opened() -> list[Opened]:
        every = facts.partitions.values()
        facts.fetch_accounts([partition.ref for partition in every], [GLOBAL])
        return [
            Opened(partition.ref, partition.index, slice_status(facts, partition, now).status in CLOSED)
            for partition in every
        ]

    return OpenPartitions(opened)


def _question(facts: Snapshot | PastSnapshot, body: Object, actor: str, now: int) -> WhatIf:
    """Raises: Malformed."""
    from ledger.domain.decision import Rejected
    from ledger.domain.partition_ranges import partitions_within
    from ledger.wire import canonical_json as c
    from ledger.wire.malformed import Malformed
    from policy.planning.what_if import PlannedRun, WhatIf

    if not actor:
        raise Malformed("--actor", "is missing: name the organisation that would make the charge")
    planned = PlannedRun.parse(body, c.did(actor, "--actor"))
    for ref in planned.partitions:
        if ref not in facts.partitions:
            raise failure(f"there is no partition {ref}", ExitCode.NOT_FOUND)
    try:
        partitions_within(facts, planned.partitions, planned.ranges)
    except Rejected as refusal:
        raise failure(refusal.decided.detail, refusal.decided.code.exit_code) from None
    if planned.contract not in facts.contracts:
        raise failure(f"there is no contract {planned.contract}", ExitCode.NOT_FOUND)
    if planned.actor not in facts.organisations:
        raise failure(f"{planned.actor} is not registered", ExitCode.NOT_FOUND)
    return WhatIf(facts, planned, now, exact=True)
