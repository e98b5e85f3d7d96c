"""Commands that call a service: ``epsilon account``, ``quote``, ``login``, and groups for governing and training."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from client.cli import charge, clock, contract, lineage, model, policy
from client.cli.command_group import TOP_LEVEL, Result
from client.cli.output import cell, objects, print_rows
from client.cli.signing_keys import recovery
from client.cli.streams import advance, show
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from client.profile.profile import Profile
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

WAIT_S: Final = 300
app = TOP_LEVEL.app
_GROUPS: Final = (
    policy.group,
    advance.group,
    show.group,
    contract.group,
    charge.group,
    model.group,
    lineage.group,
    recovery.group,
    clock.group,
)
for _group in _GROUPS:
    app.add_typer(_group.app, name=_group.name)


@TOP_LEVEL.profile_command(
    "demo/auditor.toml",
    "auditor.toml --no-browser --port 8400",
    note="For a machine without a browser, tunnel the second with `ssh -L 8400:127.0.0.1:8400` and open the URL "
    "on your own.",
)
def login(
    person: Profile,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Local port of the redirect; 0: any free one.")] = 0,
    timeout: Annotated[int, typer.Option(min=1, max=3_600, help="Seconds to wait for the browser.")] = WAIT_S,
    *,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser here.")] = True,
) -> Result:
    """Log in with a browser, with the profile of a person; commands that read work after that."""
    import webbrowser

    from client.login.authorization_code import log_in
    from client.profile.token_store import LoginFile

    def show(url: str) -> None:
        say(f"Log in at\n\n  {url}\n\nWaiting for {timeout} s; ctrl-C cancels.", err=True)

    login = log_in(person, show, webbrowser.open if browser else None, port=port, wait_s=timeout)
    LoginFile(person.path).write(login)
    until = datetime.fromtimestamp(login.expires_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Result(
        {"expires_s": login.expires_s, "issuer": login.issuer, "subject": login.subject},
        f"Logged in as {login.subject} of {login.issuer}, until {until}.",
    )


@TOP_LEVEL.profile_command("demo/auditor.toml", "auditor.toml --json")
def logout(profile: Profile) -> Result:
    """Delete a profile's login from this machine; at the issuer it expires within minutes."""
    from client.profile.token_store import LoginFile

    profile.person()
    removed = LoginFile(profile.path).remove()
    return Result({"logged_out": removed}, "Logged out." if removed else "Not logged in.")


_OPEN: Final = "open"
_MEANING: Final = (
    "ε at most: holds at whatever moment it is read. So it may be proven at a part of δ, and be above the budget's ε.\n"
    "Whether the budget is kept, the share used says, which decides on each run: up to 100 %, all runs of the account\n"
    "together keep the ε of what binds at the whole δ, unless a decree has reset the account."
)


def _print_accounts(partitions: list[Object]) -> None:
    for partition in partitions:
        budget = partition["budget"]
        delta = cell(budget["delta"]) if isinstance(budget, dict) else "-"
        epsilon = cell(budget["epsilon"]) if isinstance(budget, dict) else "-"
        state = str(partition["state"])
        closed = "" if state == _OPEN else f"; {state.replace('_', ' ')}, takes no charge"
        say(f"{cell(partition['partition'])}: a budget of ε {epsilon} at δ {delta}{closed}")
        rows = [
            (
                cell(account.get("name")),
                cell(account.get("share")),
                cell(account["runs_like_the_last"]),
                f"{cell(account['odometer'])} ({cell(account.get('bound'))}, δ {delta})",
                cell(account.get("closed") or account.get("binding") or "nothing: it is only watched"),
            )
            for account in objects(partition["accounts"])
        ]
        if not rows:
            say(f"  No run has been charged{'' if closed else ': the whole budget is left'}.")
            continue
        print_rows(("account of", "used", "more runs like the last", "ε at most", "what binds"), rows, fold_from=3)
    if any(objects(shown["accounts"]) for shown in partitions):
        say(_MEANING)


@TOP_LEVEL.read_command(
    "demo/profile.toml",
    "demo/profile.toml did:web:hospital.example/digits/2026-q1 --json",
    "demo/profile.toml did:web:hospital.example/digits/2026-q1 --proof account.json",
    table=_print_accounts,
)
def account(
    service: Service,
    partition: Annotated[str, typer.Argument(help="provider/dataset/partition; all of them if not given.")] = "",
    proof: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a proof of one account, for verifier.py account.")
    ] = None,
    holder: Annotated[str, typer.Option(help="Whose account is proven: an organisation, or global.")] = "global",
) -> list[Object]:
    """Show the accounts of one partition, or of all: the share used of what binds, the runs that fit, and ε."""
    if proof is not None:
        from client.cli.arguments import account_holder
        from ledger.files.atomic_file import SHARED, replace_file

        if not partition:
            raise typer.BadParameter("name the partition whose account is to be proven", param_hint="PARTITION")
        named = account_holder(service, partition, holder)
        replace_file(proof, service.account_proof(partition, named).encode(), mode=SHARED)
        note = "It shows what the log's key signed; that it is right, `epsilon verify` shows."
        say(f"Wrote {proof}: check it by `verifier.py account {proof} --log log.vkey`. {note}", err=True)
    return [service.accounts(ref) for ref in ([partition] if partition else service.partitions())]
