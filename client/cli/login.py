"""``epsilon login`` and ``epsilon logout``: a person's access token, obtained with their browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from client.cli.arguments import AsJson, ProfilePath
from client.cli.error_report import errors_reported
from client.cli.output import print_json

WAIT_S: Final = 300


def login(
    profile: ProfilePath,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Local port of the redirect; 0: any free one.")] = 0,
    timeout: Annotated[int, typer.Option(min=1, max=3_600, help="Seconds to wait for the browser.")] = WAIT_S,
    *,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser here.")] = True,
    as_json: AsJson = False,
) -> None:
    """Log in with a browser, with the profile of a person; commands that read work after that."""
    import webbrowser

    from client.login.authorization_code import log_in
    from client.profile.profile import Profile
    from client.profile.token_store import LoginFile

    def show(url: str) -> None:
        typer.echo(f"Log in at\n\n  {url}\n\nWaiting for {timeout} s; ctrl-C cancels.", err=True)

    with errors_reported(as_json=as_json):
        person = Profile.load(profile)
        login = log_in(person, show, webbrowser.open if browser else None, port=port, wait_s=timeout)
        LoginFile(profile).write(login)
    until = datetime.fromtimestamp(login.expires_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if as_json:
        print_json({"expires_s": login.expires_s, "issuer": login.issuer, "subject": login.subject})
    else:
        typer.echo(f"Logged in as {login.subject} of {login.issuer}, until {until}.")


def logout(profile: ProfilePath, *, as_json: AsJson = False) -> None:
    """Delete a profile's login from this machine; at the issuer it expires within minutes."""
    from client.profile.profile import Profile
    from client.profile.token_store import LoginFile

    with errors_reported(as_json=as_json):
        Profile.load(profile).person()
        removed = LoginFile(profile).remove()
    if as_json:
        print_json({"logged_out": removed})
    else:
        typer.echo("Logged out." if removed else "Not logged in.")
