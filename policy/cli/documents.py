"""The commands for authors of documents: ``epsilon document check`` and ``epsilon document schema``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ledger.cli.terminal_output import examples
from ledger.domain.exit_codes import ExitCode

app = typer.Typer(pretty_exceptions_show_locals=False)
document = typer.Typer(no_args_is_help=True, help="Validate policies, recommendations, datasets and contracts.")
app.add_typer(document, name="document")


@document.command(epilog=examples("document check", "policy.yaml", "contract.json --json"))
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One document, JSON or YAML.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Validate a document: its schema and its consistency; an error names the field, line and column."""
    from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
    from ledger.wire.canonical_json import digest
    from ledger.wire.malformed import Malformed
    from policy.documents.document_text import canonical_form
    from policy.documents.json_schemas import read_any

    try:
        with file.open("rb") as opened:
            data = opened.read(POLICY_DOCUMENT_BYTES_MAX + 1)
        kind, source = read_any(data)
    except OSError as error:
        typer.echo(f"{file}: {error.strerror}: name a document's file", err=True)
        raise typer.Exit(ExitCode.NOT_FOUND) from None
    except Malformed as error:
        typer.echo(
            json.dumps({"field": error.field, "ok": False, "rule": error.rule}) if as_json else f"{file}: {error}"
        )
        if not as_json:
            typer.echo("Fix the field named above and check it again.", err=True)
        raise typer.Exit(ExitCode.INVALID) from None
    same = digest(canonical_form(data, POLICY_DOCUMENT_BYTES_MAX))
    result = {"canonical": same, "document": digest(data), "kind": kind, "ok": True, "source": source}
    typer.echo(json.dumps(result) if as_json else f"{file}: {source}, document {result['document']}")


@document.command(epilog=examples("document schema", "policy", "contract > contract.schema.json"))
def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="policy, recommendation, dataset or contract.")],
) -> None:
    """Print the JSON Schema of a kind of document."""
    from policy.documents.json_schemas import KINDS, schema_of

    if kind not in KINDS:
        typer.echo(f"{kind}: must be one of {', '.join(KINDS)}", err=True)
        raise typer.Exit(ExitCode.INVALID)
    typer.echo(json.dumps(schema_of(kind), indent=2, sort_keys=True))
