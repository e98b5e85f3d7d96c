"""DEPA's commands: ``epsilon depa check`` and ``epsilon depa adapt``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.terminal_output import examples
from ledger.cli.verbose_option import verbosely
from ledger.command_line.printable_text import json_text, printable, printable_lines, say
from policy.cli.depa_adaptation import ADAPT_EXAMPLES, LEVEL_MAX, RECORDS_MAX, adapt, read_file

if TYPE_CHECKING:
    from policy.depa.evaluation import Terms, Waived
    from policy.depa.import_check import Checked, Registration

app = typer.Typer(pretty_exceptions_show_locals=False)
depa = typer.Typer(no_args_is_help=True, help="Import DEPA contracts and pipelines.")
app.add_typer(depa, name="depa")
depa.command(epilog=ADAPT_EXAMPLES)(verbosely(adapt))


_Contract = Annotated[Path, typer.Argument(metavar="CONTRACT", help="A contract: JSON, or its COSE_Sign envelope.")]
_Pipeline = Annotated[Path, typer.Argument(metavar="PIPELINE", help="A pipeline configuration in JSON.")]
_Records = Annotated[
    int | None,
    typer.Option(min=1, max=RECORDS_MAX, help="Training records after joins and splits; neither file has it."),
]
_Rows = Annotated[
    int | None,
    typer.Option("--rows-per-principal", min=1, max=64, help="Maximum rows per data principal, as TDPs declare."),
]
_Level = Annotated[int, typer.Option(min=0, max=LEVEL_MAX, help="The datasets' sensitivity Level.")]
_Runs = Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of runs that the contract allows.")]
_Version = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Version of the contract; an amendment is the next version.")
]
_Budget = Annotated[str, typer.Option(help="ε of a partition to count runs against; the contract's own ε if omitted.")]
_At = Annotated[str, typer.Option(help="Check dates at this time, as 2026-01-01T00:00:00Z; now if omitted.")]
_Did = Annotated[
    list[Path] | None,
    typer.Option(help="A party's DID document; repeat the option for each party. Implies --signed."),
]
_Signed = Annotated[bool, typer.Option("--signed", help="Refuse a contract without its signed envelope.")]
_Service = Annotated[
    Path | None,
    typer.Option(
        "--contract-service",
        metavar="FILE",
        help="Demand a receipt of this contract service: the JSON that its /parameters answered. Implies --signed.",
    ),
]
_Receipt = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The service's receipt, in CBOR; the one in the envelope if omitted."),
]
_Waive = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CODE",
        help="What SROs waive of this pipeline: join_unbounded, metrics_exact or"
        " preprocessing_fitted; repeat it. They sign our contract too.",
    ),
]
_WaivedBy = Annotated[
    list[str] | None, typer.Option(metavar="DID", help="The SRO that waives; repeat it for each domain's SRO.")
]
_WaivedUntil = Annotated[str, typer.Option(help="When waivers end, as 2026-12-01T00:00:00Z.")]
_WaiverReason = Annotated[str, typer.Option(help="Why the SRO waives, for people.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@depa.command(
    epilog=examples(
        "depa check",
        "contract.json pipeline_config.json --records 1483",
        "contract.cose pipeline_config.json --did tdp.json --did tdc.json --rows-per-principal 1 --json",
        note="Exit codes: 0 the files can be imported; 3 they are refused; 6 a signature is invalid; 2 invalid input.",
    )
)
@verbosely
def check(  # noqa: PLR0913 - what neither file says
    contract: _Contract,
    pipeline: _Pipeline,
    *,
    records: _Records = None,
    rows: _Rows = None,
    level: _Level = 1,
    runs: _Runs = 1,
    version: _Version = 1,
    budget: _Budget = "",
    at: _At = "",
    did: _Did = None,
    signed: _Signed = False,
    service: _Service = None,
    receipt: _Receipt = None,
    waive: _Waive = None,
    waived_by: _WaivedBy = None,
    waived_until: _WaivedUntil = "",
    waiver_reason: _WaiverReason = "",
    as_json: _AsJson = False,
) -> None:
    """Check that a DEPA contract and pipeline can be imported; with --records, compute the run's noise and ε."""
    from ledger.domain.outcomes import Code
    from ledger.wire.malformed import Malformed
    from policy.checks.field_readers import parse_epsilon, parse_time
    from policy.depa.evaluation import Terms
    from policy.depa.import_check import check as run_check

    if receipt is not None and service is None:
        say("--receipt: needs --contract-service, the service that must have signed it", err=True)
        raise typer.Exit(Code.MALFORMED.exit_code)

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
            waived=_read_waivers(waive or [], waived_by or [], waived_until, waiver_reason),
        )
        documents = [read_file(path) for path in did or ()]
        registration = None if service is None else _registration(service, receipt)
        checked = run_check(read_file(contract), read_file(pipeline), terms, documents, registration)
    except Malformed as error:
        say(printable(str(error)), err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    except OSError as error:
        say(f"{error.filename}: {error.strerror}", err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    if as_json:
        say(json_text(checked.to_json(), indent=2, ensure_ascii=False))
    else:
        _print(checked, terms)
    raise typer.Exit(checked.code.exit_code)


def _registration(service: Path, receipt: Path | None) -> Registration:
    from policy.depa.contract.service_receipt import read_service
    from policy.depa.import_check import Registration

    pinned = read_service(read_file(service), "--contract-service")
    return Registration(pinned, None if receipt is None else read_file(receipt))


def _read_waivers(codes: list[str], issuers: list[str], until: str, reason: str) -> Waived | None:
    """The waivers from the options: all options must be given, or none. Raises: Malformed, naming the option."""
    from ledger.wire import canonical_json as c
    from ledger.wire.malformed import Malformed
    from policy.checks.field_readers import parse_time
    from policy.depa.evaluation import Waived
    from policy.documents.contract import WAIVABLE

    options = {"--waive": codes, "--waived-by": issuers, "--waived-until": until, "--waiver-reason": reason}
    if not any(options.values()):
        return None
    for option, value in options.items():
        if not value:
            raise Malformed(option, "is needed with the other options of a waiver")
    for code in codes:
        c.one_of(code, "--waive", WAIVABLE)
    sros = tuple(dict.fromkeys(c.did(issuer, "--waived-by") for issuer in issuers))
    return Waived(tuple(codes), sros, parse_time(until, "--waived-until"), reason)


def _print(checked: Checked, terms: Terms) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("reason", "where, what and why", show_lines=True)
    table.columns[0].no_wrap = True
    table.columns[1].overflow = "fold"
    for reason in checked.reasons:
        effect = ("refused", "red") if reason.refused else ("warned", "yellow")
        where = "\n".join(line for line in (reason.field, reason.value, reason.text) if line)
        table.add_row(Text.assemble(reason.code, "\n", effect, f" ({reason.phase})"), Text(printable_lines(where)))
    console = Console()
    if checked.reasons:
        console.print(table)
    for line in _in_words(checked, terms):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def _in_words(checked: Checked, terms: Terms) -> list[str]:
    from policy.checks.field_readers import format_time

    lines = [f"contract SHA-256 {checked.payload}", f"pipeline SHA-256 {checked.pipeline}"]
    if checked.envelope is not None:
        lines.append(f"signatures by {', '.join(signature.signer for signature in checked.envelope.signatures)}")
    if checked.receipt is not None:
        when = f" {format_time(checked.receipt.registered * 1_000)}" if checked.receipt.registered is not None else ""
        lines.append(f"registered{when} by the contract service {checked.receipt.service_id}")
    lines += _price_in_words(checked, terms)
    refused = sum(reason.refused for reason in checked.reasons)
    if checked.code.refused:
        return [
            *lines,
            f"Refused: {refused} reason{'s' if refused > 1 else ''}, {len(checked.reasons) - refused} warnings.",
        ]
    return [*lines, "Imported: --json prints the contract for every party to sign, and the body of a charge."]


def _price_in_words(checked: Checked, terms: Terms) -> list[str]:
    from ledger.mechanisms.plan import Plan
    from ledger.wire.exact_numbers import ceil_decimal, format_number

    if checked.priced is None:
        unknown = any(reason.code == "noise_unknown" for reason in checked.reasons)
        return ["The noise is unknown: neither file has the number of records (see --records)."] if unknown else []
    priced, run = checked.priced, checked.priced.report
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
