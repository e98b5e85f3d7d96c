"""Commands that ask a service: ``epsilon account`` and ``epsilon quote``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from client.service import Answer
    from ledger.canonical import Object

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)
key = typer.Typer(no_args_is_help=True, help="Hand data keys over, as the ledger authorises.")
app.add_typer(key, name="key")

_ACCOUNT_EXAMPLES: Final = """
Examples:

  epsilon account demo/profile.toml

  epsilon account demo/profile.toml did:web:hospital.example/digits/2026-q1 --json
"""
_QUOTE_EXAMPLES: Final = """
Examples:

  epsilon quote demo/profile.toml charge.json

  epsilon quote demo/profile.toml charge.json --json
"""
_GRANT_EXAMPLES: Final = """
Examples:

  epsilon key grant hospital.toml release-run-1

  epsilon key grant hospital.toml release-run-1 --data-key did:web:hospital.example/digits/2026-q1=digits.key
"""
ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named client.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs instead of a table.")]


@app.command(epilog=_ACCOUNT_EXAMPLES)
def account(
    profile: ProfilePath,
    partition: Annotated[str, typer.Argument(help="provider/dataset/partition; all of them if not given.")] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the accounts of one partition, or of all: what is used, and how many more runs fit."""
    from client.profile import Profile

    with _faults_told():
        known = Profile.load(profile)
        with known.open() as service:
            found = [service.accounts(ref) for ref in ([partition] if partition else service.partitions())]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print_accounts(found)


@app.command(epilog=_QUOTE_EXAMPLES)
def quote(
    profile: ProfilePath,
    charge: Annotated[Path, typer.Argument(help="The body of a charge, in JSON.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Ask for the decision that a charge would get now; nothing is recorded."""
    from client.profile import Profile
    from ledger.canonical import parse
    from ledger.commands import COMMAND_BYTES_MAX
    from ledger.malformed import Malformed

    with _faults_told():
        known = Profile.load(profile)
        body = parse(charge.read_bytes(), COMMAND_BYTES_MAX, str(charge))
        if not isinstance(body, dict):
            raise Malformed(str(charge), "must be an object")
        with known.open() as service:
            _print_quote(service.quote(known.signer(), known.actor, body), as_json=as_json)


@key.callback()
def _key_group() -> None:
    """Hand data keys over, as the ledger authorises."""


@key.command(epilog=_GRANT_EXAMPLES)
def grant(
    profile: ProfilePath,
    release: Annotated[str, typer.Argument(help="The id of the key release, as the clean room tells it.")],
    data_key: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTITION=FILE", help="A file of 32 bytes, sealed to the clean room. May be repeated."),
    ] = None,
) -> None:
    """Check a key release against the log's own key, and seal data keys to the clean room it names.

    With no data key it prints what is granted, as JSON: partitions, sealing key, and until when.
    """
    from time import time_ns

    from client.key_grant import check, fetch, read_data_keys
    from client.profile import Profile

    with _faults_told():
        known = Profile.load(profile)
        with known.open() as service:
            charge, proven = fetch(service, release)
        granted = check(charge, proven, known.log, known.actor, time_ns() // 1_000_000)
        given = read_data_keys(data_key or ())
        typer.echo(json.dumps(granted.seal(given) if given else granted.to_json(), indent=2))


@contextmanager
def _faults_told() -> Iterator[None]:
    from client.problem import Refused, Unreachable
    from ledger.malformed import Malformed
    from ledger.outcomes import Code

    try:
        yield
    except Refused as fault:
        typer.echo(str(fault), err=True)
        for reason in fault.reasons:
            typer.echo(f"  {reason.code}: {reason.detail}", err=True)
        raise typer.Exit(fault.exit_code) from None
    except Unreachable as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(fault.exit_code) from None
    except (Malformed, OSError) as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(Code.MALFORMED.exit_code) from None


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


def _print_quote(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(answer.body, indent=2))
    else:
        typer.echo(f"The charge would be {answer.outcome}.")
