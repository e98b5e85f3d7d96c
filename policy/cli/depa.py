"""DEPA's commands: ``epsilon depa check`` and ``epsilon depa adapt``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.terminal_output import examples

if TYPE_CHECKING:
    from policy.depa.adaptation import Adapted
    from policy.depa.evaluation import Terms
    from policy.depa.import_check import Checked

app = typer.Typer(pretty_exceptions_show_locals=False)
depa = typer.Typer(no_args_is_help=True, help="Import DEPA contracts and pipelines.")
app.add_typer(depa, name="depa")

_LEVEL_MAX: Final = 2
_RECORDS_MAX: Final = 10**12


@depa.command(
    epilog=examples(
        "depa check",
        "contract.json pipeline_config.json --records 1483",
        "contract.cose pipeline_config.json --did tdp.json --did tdc.json --rows-per-principal 1 --json",
        note="Exit codes: 0 the files can be imported; 3 they are refused; 6 a signature is invalid; 2 invalid input.",
    )
)
def check(  # noqa: PLR0913 - what neither file says
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT", help="A contract: JSON, or its COSE_Sign envelope.")],
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE", help="A pipeline configuration in JSON.")],
    *,
    records: Annotated[
        int | None,
        typer.Option(min=1, max=_RECORDS_MAX, help="Training records after joins and splits; neither file has it."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows-per-principal", min=1, max=64, help="Maximum rows per data principal, as TDPs declare."),
    ] = None,
    level: Annotated[int, typer.Option(min=0, max=_LEVEL_MAX, help="The datasets' sensitivity Level.")] = 1,
    runs: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of runs that the contract allows.")] = 1,
    version: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Version of the contract; an amendment is the next version.")
    ] = 1,
    budget: Annotated[
        str, typer.Option(help="ε of a partition to count runs against; the contract's own ε if omitted.")
    ] = "",
    at: Annotated[str, typer.Option(help="Check dates at this time, as 2026-01-01T00:00:00Z; now if omitted.")] = "",
    did: Annotated[
        list[Path] | None,
        typer.Option(help="A party's DID document; repeat the option for each party. Implies --signed."),
    ] = None,
    signed: Annotated[bool, typer.Option("--signed", help="Refuse a contract without its signed envelope.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Check that a DEPA contract and pipeline can be imported; with --records, compute the run's noise and ε."""
    from ledger.domain.outcomes import Code
    from ledger.wire.malformed import Malformed
    from policy.checks.field_readers import parse_epsilon, parse_time
    from policy.depa.evaluation import Terms
    from policy.depa.import_check import check as run_check

    try:
        terms = Terms(
            now=parse_time(at, "--at") if at else time.time_ns() // 1_000_000,
            level=level,
            records=records,
            rows=rows,
            runs=runs,
            version=version,
            budget=parse_epsilon(budget, "--budget") if budget else None,
            signed=signed or bool(did),
        )
        documents = [_read(path) for path in did or ()]
        found = run_check(_read(contract), _read(pipeline), terms, documents)
    except Malformed as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    except OSError as error:
        typer.echo(f"{error.filename}: {error.strerror}", err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        _print(found, terms)
    raise typer.Exit(found.code.exit_code)


@depa.command(
    epilog=examples(
        "depa adapt",
        "contract.json pipeline_config.json --records 1483 --level 1",
        "contract.json pipeline_config.json --records 1483 --tdc did:web:c.example --tdp icmr=did:web:i.example"
        " --ends 2027-01-01T00:00:00Z --rows-per-principal 1",
        note="Exit codes: 0 the adapted files can be imported; 3 a decision is needed or no change helps; 2 invalid"
        " input.",
    )
)
def adapt(  # noqa: PLR0913 - what neither file says
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT", help="A contract in JSON.")],
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE", help="A pipeline configuration in JSON.")],
    *,
    into: Annotated[
        Path, typer.Option(help="A new folder for contract.json, pipeline.json, changes.json and document.json.")
    ] = Path("adapted"),
    records: Annotated[
        int | None, typer.Option(min=1, max=_RECORDS_MAX, help="Training records after joins and splits.")
    ] = None,
    level: Annotated[int, typer.Option(min=0, max=_LEVEL_MAX, help="The datasets' sensitivity Level.")] = 1,
    tdc: Annotated[str, typer.Option(help="The consumer's DID, if the contract names none.")] = "",
    tdp: Annotated[
        list[str] | None,
        typer.Option(metavar="OWNER=DID", help="A provider's DID by the owner that datasets name; repeat it."),
    ] = None,
    starts: Annotated[str, typer.Option(help="When the contract begins, as 2026-01-01T00:00:00Z.")] = "",
    ends: Annotated[str, typer.Option(help="When it ends.")] = "",
    rows: Annotated[
        int | None,
        typer.Option("--rows-per-principal", min=1, max=64, help="Maximum rows per data principal, as TDPs declare."),
    ] = None,
    lower_noise: Annotated[
        bool,
        typer.Option("--lower-noise", help="Lower the contract's noise to the run's; else the run's ε is lowered."),
    ] = False,
    at: Annotated[str, typer.Option(help="Check dates at this time; now if omitted.")] = "",
) -> None:
    """Change a DEPA contract and pipeline as little as possible so that they can be imported; list every change."""
    from ledger.domain.outcomes import Code
    from ledger.wire.malformed import Malformed
    from policy.checks.field_readers import parse_time
    from policy.depa.adaptation import PartyDecisions
    from policy.depa.adaptation import adapt as run_adapt
    from policy.depa.evaluation import Terms

    try:
        decided = PartyDecisions(
            tdc=tdc,
            providers=dict(_named(one) for one in tdp or ()),
            starts=parse_time(starts, "--starts") if starts else None,
            ends=parse_time(ends, "--ends") if ends else None,
            rows=rows,
            least_noise=lower_noise,
        )
        now = parse_time(at, "--at") if at else time.time_ns() // 1_000_000
        terms = Terms(now=now, level=level, records=records)
        found = run_adapt(_read(contract), _read(pipeline), terms, decided)
        if not found.checked.code.refused:
            _write(into, found)
    except Malformed as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    except OSError as error:
        typer.echo(f"{error.filename}: {error.strerror}", err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    _print_changes(found, into)
    raise typer.Exit(found.checked.code.exit_code)


def _named(text: str) -> tuple[str, str]:
    from ledger.wire import canonical_json as c
    from ledger.wire.malformed import Malformed

    owner, equals, did = text.partition("=")
    if not owner or not equals:
        raise Malformed("--tdp", f"must be OWNER=DID, not {text[:80]!r}")
    return owner, c.did(did, "--tdp")


def _write(into: Path, found: Adapted) -> None:
    """All files of a new folder, or none: what is there already is nobody's to replace."""
    from ledger.files.atomic_file import SHARED, replace_file

    into.mkdir(parents=True)
    files = {
        "contract.json": found.contract,
        "pipeline.json": found.pipeline,
        "changes.json": json.dumps([one.to_json() for one in found.changes], indent=2, ensure_ascii=False).encode(),
        "document.json": found.checked.contract,
    }
    for name, data in files.items():
        if data is not None:
            replace_file(into / name, data, mode=SHARED)


def _print_changes(found: Adapted, into: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("field", "from", "to", "because it", show_lines=True)
    for place in range(4):
        table.columns[place].overflow = "fold"
    for one in found.changes:
        table.add_row(one.field, one.before, one.after, one.reason)
    if found.changes:
        console.print(table)
    refused = [one for one in found.checked.reasons if one.refused]
    lines = [f"needed: {text}" for text in found.needed]
    lines += [f"refused: {one.field} {one.text} ({one.code})" for one in refused]
    changed = f"{len(found.changes)} change{'' if len(found.changes) == 1 else 's'}"
    if refused:
        lines.append(f"{changed}, and nothing was written: decide what is needed; no change mends other refusals.")
    else:
        lines.append(f"{changed}; the files are in {into}.")
        lines.append(f"For every party to sign: epsilon contract sign {into / 'document.json'}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _read(path: Path) -> bytes:
    """A file's bytes, one more than any reader takes at most."""
    from policy.depa.contract.cose_sign import ENVELOPE_BYTES_MAX

    with path.open("rb") as file:
        return file.read(ENVELOPE_BYTES_MAX + 1)


def _print(found: Checked, terms: Terms) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("reason", "where, what and why", show_lines=True)
    table.columns[0].no_wrap = True
    table.columns[1].overflow = "fold"
    for one in found.reasons:
        effect = ("refused", "red") if one.refused else ("warned", "yellow")
        where = "\n".join(line for line in (one.field, one.value, one.text) if line)
        table.add_row(Text.assemble(one.code, "\n", effect, f" ({one.phase})"), Text(where))
    console = Console()
    if found.reasons:
        console.print(table)
    for line in _in_words(found, terms):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _in_words(found: Checked, terms: Terms) -> list[str]:
    lines = [f"contract SHA-256 {found.payload}", f"pipeline SHA-256 {found.pipeline}"]
    if found.envelope is not None:
        lines.append(f"signatures by {', '.join(one.signer for one in found.envelope.signatures)}")
    lines += _price_in_words(found, terms)
    refused = sum(reason.refused for reason in found.reasons)
    if found.code.refused:
        return [
            *lines,
            f"Refused: {refused} reason{'s' if refused > 1 else ''}, {len(found.reasons) - refused} warnings.",
        ]
    return [*lines, "Imported: --json prints the contract for every party to sign, and the body of a charge."]


def _price_in_words(found: Checked, terms: Terms) -> list[str]:
    from ledger.mechanisms.plan import Plan
    from ledger.wire.exact_numbers import ceil_decimal, format_number

    if found.priced is None:
        unknown = any(reason.code == "noise_unknown" for reason in found.reasons)
        return ["The noise is unknown: neither file has the number of records (see --records)."] if unknown else []
    priced, run = found.priced, found.priced.report
    lines = [
        f"noise multiplier {format_number(plan.noise_multiplier)}, sampling probability"
        f" {format_number(plan.sampling_probability)}, {plan.steps} steps, clipping norm"
        f" {format_number(plan.clipping_norm)}"
        for plan in priced.plans
        if isinstance(plan, Plan)
    ]
    group = "" if priced.rows == 1 else f" for groups of {priced.rows} rows"
    group = " for one row, not for a data principal" if priced.rows is None else group
    of = f" of {terms.records} records" if terms.records else ""
    lines.append(
        f"one run{of}: ε {ceil_decimal(run.epsilon, 6)} at δ {format_number(run.delta)}{group}"
        f" ({run.accountant}, {run.relation}, {run.version})"
    )
    if priced.budget is not None:
        for rule, count in priced.runs:
            held = (
                f"{count} such run{'' if count == 1 else 's'}" if isinstance(count, int) else f"none counted: {count}"
            )
            lines.append(f"a partition of ε {format_number(priced.budget)} under the rule {rule} holds {held}")
    return lines
