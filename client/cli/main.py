"""Commands that call a service: ``epsilon account``, ``quote``, ``login``, and groups for governing and training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from client.cli import charge, contract, dataset, key, lineage, login, policy
from client.cli.declarations import examples, read_command
from client.cli.output import cell, objects, print_rows

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)
for _name, _group in (
    ("policy", policy.app),
    ("dataset", dataset.app),
    ("contract", contract.app),
    ("charge", charge.app),
    ("lineage", lineage.app),
    ("key", key.app),
):
    app.add_typer(_group, name=_name)
app.command(
    epilog=examples(
        "quote bank-a.toml charge.json",
        "quote bank-a.toml charge.json --contract contract.json --deadline 2026-12-01T00:00:00Z --json",
    )
)(charge.quote)
app.command(
    epilog=examples(
        "login demo/auditor.toml",
        "login auditor.toml --no-browser --port 8400",
        note="For a machine without a browser, tunnel the second with `ssh -L 8400:127.0.0.1:8400` and open the URL "
        "on your own.",
    )
)(login.login)
app.command(epilog=examples("logout demo/auditor.toml", "logout auditor.toml --json"))(login.logout)


def _print_accounts(partitions: list[Object]) -> None:
    rows = []
    for partition in partitions:
        budget = partition["budget"]
        delta = cell(budget["delta"]) if isinstance(budget, dict) else "-"
        for one in objects(partition["accounts"]):
            used = cell(one["share_of_budget"]), cell(one["odometer"]), delta, cell(one["runs_like_the_last"])
            rows.append((cell(partition["partition"]), _holder(one), *used))
    print_rows(
        ("partition", "account of", "share of budget", "ε so far (odometer)", "at δ", "runs like the last"), rows
    )


@read_command(
    app,
    "account demo/profile.toml",
    "account demo/profile.toml did:web:hospital.example/digits/2026-q1 --json",
    table=_print_accounts,
)
def account(
    service: Service,
    partition: Annotated[str, typer.Argument(help="provider/dataset/partition; all of them if not given.")] = "",
) -> list[Object]:
    """Show the accounts of one partition, or of all: the budget used, and how many more runs fit."""
    return [service.accounts(ref) for ref in ([partition] if partition else service.partitions())]


def _holder(account: Object) -> str:
    organisations = account["organisations"]
    names = [str(one) for one in organisations] if isinstance(organisations, list) else []
    return ", ".join(names) or ("everyone" if account["holder"] == "global" else str(account["holder"]))
