"""``epsilon login`` and ``epsilon logout``: a person's access token, by way of their browser."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from client.cli.service_command import AsJson, ProfilePath, faults_told

WAIT_S: Final = 300


def login(
    profile: ProfilePath,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where the browser comes back to; 0: a free one.")] = 0,
    timeout: Annotated[int, typer.Option(min=1, max=3_600, help="Seconds to wait for the browser.")] = WAIT_S,
    *,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser here.")] = True,
    as_json: AsJson = False,
) -> None:
    """Log in with a browser, as the person of a profile without a key; then commands that read may be run."""
    import webbrowser

    from client.login.authorization_code import log_in
    from client.profile.profile import Profile
    from client.profile.token_store import LoginFile

    def tell(url: str) -> None:
        typer.echo(f"Log in at\n\n  {url}\n\nand come back. Waiting for {timeout} s; ctrl-C ends it.", err=True)

    with faults_told(as_json=as_json):
        known = Profile.load(profile)
        found = log_in(known, tell, webbrowser.open if browser else None, port=port, wait_s=timeout)
        LoginFile(profile).write(found)
    until = datetime.fromtimestamp(found.expires_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if as_json:
        told = {"expires_s": found.expires_s, "issuer": found.purpose.issuer, "subject": found.subject}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"Logged in as {found.subject} of {found.purpose.issuer}, until {until}.")


def logout(profile: ProfilePath, *, as_json: AsJson = False) -> None:
    """Forget the login of a profile on this machine; at the issuer it ends by itself, within minutes."""
    from client.profile.profile import Profile
    from client.profile.token_store import LoginFile

    with faults_told(as_json=as_json):
        Profile.load(profile).person()
        there = LoginFile(profile).remove()
    if as_json:
        typer.echo(json.dumps({"logged_out": there}, indent=2))
    else:
        typer.echo("Logged out." if there else "Nobody was logged in.")
