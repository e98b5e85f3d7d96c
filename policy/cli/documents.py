"""The commands for authors of documents: ``epsilon document check`` and ``epsilon document schema``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.terminal_output import examples
from ledger.cli.verbose_option import verbosely
from ledger.command_line.printable_text import json_text, printable, say
from ledger.command_line.verbosity import is_verbose
from ledger.domain.exit_codes import ExitCode
from ledger.files.named_file import open_named

if TYPE_CHECKING:
    from policy.planning.usable_caps import CapReport

app = typer.Typer(pretty_exceptions_show_locals=False)
document = typer.Typer(no_args_is_help=True, help="Validate policies, recommendations, datasets and contracts.")
app.add_typer(document, name="document")


@document.command(
    epilog=examples(
        "document check",
        "policy.yaml --plan plan.json",
        "contract.json --policy policy.yaml --json",
        note="Each cap shows which steps of the plan it lets run, and from which ε on the whole plan fits. A document "
        "under which no run could ever be admitted is invalid.",
    )
)
@verbosely
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One document, JSON or YAML.")],
    *,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="The policy that a contract is under.")] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A plan to try, instead of the policy's load.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Validate a document: its schema and its consistency; an error names the field, line and column."""
    from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
    from ledger.wire.canonical_json import digest
    from ledger.wire.malformed import Malformed
    from policy.documents.document_text import canonical_form
    from policy.documents.json_schemas import read_any

    try:
        data = _read(file)
        kind, source = read_any(data)
        caps = _caps(kind, data, policy, plan)
        warnings = _warnings(kind, data)
    except OSError as error:
        say(printable(f"{error.filename}: {error.strerror}: name a document's file"), err=True)
        raise typer.Exit(ExitCode.NOT_FOUND) from None
    except Malformed as error:
        say(
            json_text({"field": error.field, "ok": False, "rule": error.rule})
            if as_json
            else printable(f"{file}: {error}")
        )
        if not as_json:
            say("Fix the field named above and check it again.", err=True)
        raise typer.Exit(ExitCode.INVALID) from None
    same = digest(canonical_form(data, POLICY_DOCUMENT_BYTES_MAX))
    result = {"canonical": same, "document": digest(data), "kind": kind, "ok": True, "source": source}
    if as_json:
        say(json_text({**result, "caps": [cap.to_json() for cap in caps], "warnings": warnings}))
        return
    digest_shown = f", document {result['document']}" if is_verbose() else ""
    say(f"{file}: {source}{digest_shown}")
    for report in caps:
        say(printable(report.text if report.fits else f"warning: {report.text}"), err=not report.fits)
    for warning in warnings:
        say(f"warning: {warning}", err=True)


def _read(file: Path) -> bytes:
    from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX

    with open_named(file) as opened:
        return opened.read(POLICY_DOCUMENT_BYTES_MAX + 1)


def _warnings(kind: str, data: bytes) -> list[str]:
    """What a valid policy leaves open, in sentences. Raises: Malformed."""
    from policy.documents import Policy

    if kind != "policy" or Policy.parse(data).step_leases:
        return []
    text = "step_leases is not true: two copies of a run may train under one charge, and one of their models leaves"
    return [f"{text}; state step_leases: true"]


def _caps(kind: str, data: bytes, policy: Path | None, plan: Path | None) -> Sequence[CapReport]:
    """The caps of a policy, or of a contract and its named policy. Raises: Malformed, OSError."""
    from ledger.domain.gate import DOCUMENT_BYTES_MAX
    from ledger.mechanisms.plan_reader import parse_plan
    from ledger.wire.malformed import Malformed
    from policy.cli.document_caps import caps_of_documents
    from policy.documents import ContractDocument, Policy
    from policy.documents.document_text import read_document

    if kind != "contract" and policy is not None:
        raise Malformed("--policy", "is for a contract")
    if kind != "policy" and policy is None:
        if plan is not None:
            raise Malformed("--plan", "is for a policy, or a contract with --policy")
        return ()
    contract = None if policy is None else ContractDocument.parse(data)
    try:
        stated = Policy.parse(data if policy is None else _read(policy))
    except Malformed as error:
        raise error.under("--policy") from None
    try:
        declared_plan = None if plan is None else read_document(_read(plan), DOCUMENT_BYTES_MAX, parse_plan)
    except Malformed as error:
        raise error.under("--plan") from None
    return caps_of_documents(stated, contract, declared_plan)


@document.command(epilog=examples("document schema", "policy", "contract > contract.schema.json"))
@verbosely
def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="policy, recommendation, dataset or contract.")],
) -> None:
    """Print the JSON Schema of a kind of document."""
    from policy.documents.json_schemas import KINDS, schema_of

    if kind not in KINDS:
        say(f"{kind}: must be one of {', '.join(KINDS)}", err=True)
        raise typer.Exit(ExitCode.INVALID)
    say(json_text(schema_of(kind), indent=2, sort_keys=True))
