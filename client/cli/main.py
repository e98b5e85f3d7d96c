"""Commands that ask a service: ``epsilon account``, ``quote``, ``login``, and groups for those who govern and train."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import typer

from client.cli import charge, contract, dataset, key, lineage, login, policy
from client.cli.service_command import AsJson, ProfilePath, faults_told

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)
app.add_typer(policy.app, name="policy")
app.add_typer(dataset.app, name="dataset")
app.add_typer(contract.app, name="contract")
app.add_typer(charge.app, name="charge")
app.add_typer(lineage.app, name="lineage")
app.add_typer(key.app, name="key")

_ACCOUNT_EXAMPLES: Final = """
Examples:

  epsilon account demo/profile.toml

  epsilon account demo/profile.toml did:web:hospital.example/digits/2026-q1 --json
"""
_QUOTE_EXAMPLES: Final = """
Examples:

  epsilon quote bank-a.toml charge.json

  epsilon quote bank-a.toml charge.json --contract contract.json --deadline 2026-12-01T00:00:00Z --json
"""
_LOGIN_EXAMPLES: Final = """
Examples:

  epsilon login demo/auditor.toml

  epsilon login auditor.toml --no-browser --port 8400

The last, with `ssh -L 8400:127.0.0.1:8400`, is for a machine without a browser: open the URL on your own.
"""
_LOGOUT_EXAMPLES: Final = """
Examples:

  epsilon logout demo/auditor.toml

  epsilon logout auditor.toml --json
"""
app.command(epilog=_QUOTE_EXAMPLES)(charge.quote)
app.command(epilog=_LOGIN_EXAMPLES)(login.login)
app.command(epilog=_LOGOUT_EXAMPLES)(login.logout)


@app.command(epilog=_ACCOUNT_EXAMPLES)
def account(
    profile: ProfilePath,
    partition: Annotated[str, typer.Argument(help="provider/dataset/partition; all of them if not given.")] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the accounts of one partition, or of all: what is used, and how many more runs fit."""
    from client.profile.profile import Profile

    with faults_told(as_json=as_json):
        known = Profile.load(profile)
        with known.open() as service:
            found = [service.accounts(ref) for ref in ([partition] if partition else service.partitions())]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print_accounts(found)


def _print_accounts(found: list[Object]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("partition", "account of", "share of budget", "ε so far (odometer)", "at δ", "runs like the last")
    for partition in found:
        budget = partition["budget"]
        accounts = partition["accounts"]
        for one in accounts if isinstance(accounts, list) else []:
            if isinstance(one, dict) and isinstance(budget, dict):
                table.add_row(
                    str(partition["partition"]),
                    _names(one),
                    str(one["share_of_budget"]),
                    _shown(one["odometer"]),
                    str(budget["delta"]),
                    _shown(one["runs_like_the_last"]),
                )
    Console().print(table)


def _names(account: Object) -> str:
    organisations = account["organisations"]
    named = [str(one) for one in organisations] if isinstance(organisations, list) else []
    return ", ".join(named) or ("everyone" if account["holder"] == "global" else str(account["holder"]))


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
