"""``epsilon depa adapt``: the pair with the fewest changes that passes, written to a new folder whole or not at all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.terminal_output import examples
from ledger.command_line.printable_text import printable, printable_lines, say
from ledger.files.named_file import open_named

if TYPE_CHECKING:
    from policy.depa.adaptation import Adapted

LEVEL_MAX: Final = 2
RECORDS_MAX: Final = 10**12
ADAPT_EXAMPLES: Final = examples(
    "depa adapt",
    "contract.json pipeline_config.json --records 1483 --level 1",
    "contract.json pipeline_config.json --records 1483 --tdc did:web:c.example --tdp icmr=did:web:i.example"
    " --ends 2027-01-01T00:00:00Z --rows-per-principal 1 --job template.toml",
    note="Exit codes: 0 the adapted files can be imported; 3 a decision is needed or no change helps; 2 invalid input.",
)

_Job = Annotated[
    Path | None,
    typer.Option(
        metavar="TEMPLATE",
        help="Also write job.toml for `epsilon train`: this job, with the pair's contract, plan, join and pipeline."
        " Its paths are relative to the new folder.",
    ),
]


def adapt(  # noqa: PLR0913 - what neither file says
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT", help="A contract in JSON.")],
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE", help="A pipeline configuration in JSON.")],
    *,
    into: Annotated[
        Path, typer.Option(help="A new folder for contract.json, pipeline.json, changes.json and document.json.")
    ] = Path("adapted"),
    records: Annotated[
        int | None, typer.Option(min=1, max=RECORDS_MAX, help="Training records after joins and splits.")
    ] = None,
    level: Annotated[int, typer.Option(min=0, max=LEVEL_MAX, help="The datasets' sensitivity Level.")] = 1,
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
    job: _Job = None,
    at: Annotated[str, typer.Option(help="Check dates at this time; now if omitted.")] = "",
) -> None:
    """Change a DEPA contract and pipeline as little as possible so that they can be imported; list every change."""
    from ledger.domain.outcomes import Code
    from ledger.wire.malformed import Malformed
    from policy.checks.field_readers import parse_time
    from policy.depa.adaptation import PartyDecisions
    from policy.depa.adaptation import adapt as run_adapt
    from policy.depa.evaluation import Terms
    from policy.depa.job_file import job_file

    try:
        decided = PartyDecisions(
            tdc=tdc,
            providers=dict(_owner_and_did(text) for text in tdp or ()),
            starts=parse_time(starts, "--starts") if starts else None,
            ends=parse_time(ends, "--ends") if ends else None,
            rows=rows,
            least_noise=lower_noise,
        )
        now = parse_time(at, "--at") if at else time.time_ns() // 1_000_000
        terms = Terms(now=now, level=level, records=records)
        adapted = run_adapt(read_file(contract), read_file(pipeline), terms, decided)
        if not adapted.checked.code.refused:
            made = None
            if job is not None:
                made = job_file(read_file(job), adapted.checked, "pipeline.json", read_file(pipeline))
            _write(into, adapted, made)
    except (Malformed, OSError) as error:
        say(printable(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)), err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None
    _print_changes(adapted, into, has_job=job is not None)
    raise typer.Exit(adapted.checked.code.exit_code)


def read_file(path: Path) -> bytes:
    """A file's bytes, one more than any reader takes at most."""
    from policy.depa.contract.cose_sign import ENVELOPE_BYTES_MAX

    with open_named(path) as file:
        return file.read(ENVELOPE_BYTES_MAX + 1)


def _owner_and_did(text: str) -> tuple[str, str]:
    from ledger.wire import canonical_json as c
    from ledger.wire.malformed import Malformed

    owner, equals, did = text.partition("=")
    if not owner or not equals:
        raise Malformed("--tdp", f"must be OWNER=DID, not {text[:80]!r}")
    return owner, c.did(did, "--tdp")


def _write(into: Path, adapted: Adapted, job: bytes | None) -> None:
    """Write all files of a new folder, or none: an existing folder is never replaced."""
    from ledger.files.atomic_file import SHARED, create_file
    from ledger.files.fresh_folder import SHARED_FOLDER, fresh_folder

    into.parent.mkdir(parents=True, exist_ok=True)
    files = {
        "contract.json": adapted.contract,
        "pipeline.json": adapted.pipeline,
        "changes.json": json.dumps(
            [change.to_json() for change in adapted.changes], indent=2, ensure_ascii=False
        ).encode(),
        "document.json": adapted.checked.contract,
        "job.toml": job,
    }
    with fresh_folder(into, "--into", mode=SHARED_FOLDER) as made:
        for name, data in files.items():
            if data is not None:
                create_file(made / name, data, mode=SHARED)


def _print_changes(adapted: Adapted, into: Path, *, has_job: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table("field", "from", "to", "because it", show_lines=True)
    for place in range(4):
        table.columns[place].overflow = "fold"
    for change in adapted.changes:
        table.add_row(
            *(Text(printable_lines(text)) for text in (change.field, change.before, change.after, change.reason))
        )
    if adapted.changes:
        console.print(table)
    refused = [reason for reason in adapted.checked.reasons if reason.refused]
    lines = [f"needed: {text}" for text in adapted.needed]
    lines += [f"refused: {reason.field} {reason.text} ({reason.code})" for reason in refused]
    changed = f"{len(adapted.changes)} change{'' if len(adapted.changes) == 1 else 's'}"
    if refused:
        lines.append(f"{changed}, and nothing was written: decide what is needed; no change fixes other refusals.")
    else:
        lines.append(f"{changed}; the files are in {into}.")
        lines.append(f"For every party to sign: epsilon contract sign PROFILE {into / 'document.json'}")
        if has_job:
            lines.append(f"Once all signed and it is entered: epsilon train {into / 'job.toml'}")
    for line in lines:
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
