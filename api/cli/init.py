"""``epsilon init``: the service, an issuer and the parties of a real deployment; prompts for each decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from client.cli.wording.confirmation import ask_missing

if TYPE_CHECKING:
    from api.setup.service_folder import ServiceDecisions

INIT: Final = CommandGroup("init", "Make the parts of a real deployment: a service, its issuer, and parties.")

_SERVICE: Final = {
    "--origin": "the log's name, for ever, as ledger.example/2026",
    "--database": "where the book lies: a new SQLite file, or postgresql://HOST/NAME",
    "--url": "where callers reach the service: https, or http://127.0.0.1:PORT for tests",
    "--listen": "where it listens behind the proxy that ends TLS, as 127.0.0.1:8000",
    "--issuer": "whose access tokens it takes, as URL=FILE, the file with its public keys",
}
_ISSUER: Final = {
    "--url": "the issuer's URL: https of a running one, or http://127.0.0.1:PORT to make one",
    "--origin": "the log's name, for which its tokens are, as ledger.example/2026",
}
_PARTY: Final = {
    "--did": "the organisation's identifier, as did:web:bank-a.example",
    "--name": "its name, for people",
    "--role": "SRO, TSO, TDP, TDC or AUDITOR",
    "--service": "the service's URL",
    "--issuer": "the URL of the issuer that gives it access tokens",
    "--log": "the file with the log's verifier key, or the key itself",
}
_TYPED: Final = {
    "book": "--database",
    "serve.url": "--url",
    "serve.host": "--listen",
    "serve.port": "--listen",
    "serve.issuers": "--issuer",
    "body.roles": "--role",
    "body.name": "--name",
    "vkey": "--log",
    "client.issuer": "--url",
    "issuer.clients": "--client",
    "issuer.audience": "--origin",
}
"""Fields of profiles and registrations, by the option that gives them."""
_Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder, or one that was interrupted.")]


@INIT.command(
    "ledger --origin ledger.example/2026 --database postgresql://db.example/ledger --url https://ledger.example "
    "--listen 127.0.0.1:8000 --issuer https://login.example=login/issuer.jwks",
    "ledger --origin test.example/1 --database ledger/book.sqlite --url http://127.0.0.1:8000 "
    "--issuer http://127.0.0.1:8100=issuer/issuer.jwks",
    note="At a terminal it prompts for missing options.",
)
def service(  # noqa: PLR0913 - one argument an option
    folder: _Folder,
    *,
    origin: Annotated[str, typer.Option(help="The log's name, for ever.")] = "",
    database: Annotated[str, typer.Option(metavar="FILE|URL", help="SQLite file or PostgreSQL URL.")] = "",
    url: Annotated[str, typer.Option(help="Where callers reach the service: https, or http on loopback.")] = "",
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens, if not at --url.")] = "",
    issuer: Annotated[
        list[str] | None,
        typer.Option(metavar="URL=FILE", help="An issuer and the file of its keys. May be repeated."),
    ] = None,
    data_keys: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Store data keys here, unencrypted; else providers grant them."),
    ] = None,
) -> None:
    """Make a service: the log's key, its verifier key, and a profile for `epsilon serve`."""
    from api.cli.settings import Settings
    from api.setup.service_folder import PROFILE, ServiceDecisions, check_issuer_keys, make_service

    with errors_reported(fields=_TYPED):
        given = {"--origin": origin, "--database": database, "--url": url, "--issuer": "\n".join(issuer or ())}
        values = ask_missing(given, _SERVICE)
        if values["--url"].startswith("https:"):
            values |= ask_missing({"--listen": listen}, _SERVICE)
        decisions = ServiceDecisions(
            origin=values["--origin"],
            database=values["--database"],
            url=values["--url"],
            address=values.get("--listen", listen),
            issuers=_pairs("--issuer", values["--issuer"].split("\n")),
            data_keys=data_keys,
        )
        missing = check_issuer_keys(decisions)
        log = make_service(folder, decisions, Settings.load)
    _make_files(
        folder,
        {
            "log.pem": "the log's private key: back it up, it cannot be recovered",
            "log.vkey": "its verifier key, which every party's profile names:",
        },
    )
    typer.echo(f"    {log.vkey}")
    _make_files(folder, {PROFILE: "the profile of `epsilon serve`"}, first=False)
    _report_service(folder / PROFILE, decisions, missing)


def _report_service(profile: Path, decisions: ServiceDecisions, missing: Sequence[Path]) -> None:
    """What was not decided, and what comes next."""
    from ledger.command_line.shell_commands import epsilon_command, shown

    if decisions.data_keys is None:
        typer.echo("The service stores no data keys: providers grant their own (epsilon key grant).")
    for file in missing:
        typer.echo(f"The issuer's keys are not there yet: `epsilon init issuer` writes\n  {shown(file)}")
    database = decisions.database if "://" in decisions.database else Path(decisions.database)
    _next((epsilon_command("db", "upgrade", database), epsilon_command("serve", profile)))


@INIT.command(
    "login --url https://login.example",
    "issuer --url http://127.0.0.1:8100 --origin test.example/1 --client did:web:bank-a.example=bank-a/key.jwk",
    note="An https issuer is one that runs already (OpenID Connect): its public keys are fetched. On loopback a "
    "development issuer is made, which production refuses. At a terminal it prompts for missing options.",
)
def issuer(
    folder: _Folder,
    *,
    url: Annotated[str, typer.Option(help="The issuer's URL.")] = "",
    origin: Annotated[str, typer.Option(help="The log's name, of a development issuer's tokens.")] = "",
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="DID=FILE", help="A party and its public key (JWK). May be repeated."),
    ] = None,
) -> None:
    """Write an issuer's public keys for the service; make a development issuer if it is on loopback."""
    from urllib.parse import urlsplit

    from api.setup.issuer_folder import JWK_SET, KEY, PROFILE, fetch_issuer, make_issuer
    from client.http.base_url import is_loopback
    from ledger.command_line.shell_commands import epsilon_command
    from ledger.wire.malformed import Malformed

    with errors_reported(fields=_TYPED):
        where = ask_missing({"--url": url}, _ISSUER)["--url"]
        if is_loopback(urlsplit(where).hostname or ""):
            name = ask_missing({"--origin": origin}, _ISSUER)["--origin"]
            key_id = make_issuer(folder, where, name, _pairs("--client", client or ()))
        elif client or origin:
            raise Malformed("--client" if client else "--origin", "is of a development issuer, on loopback")
        else:
            keys = fetch_issuer(folder, where)
            _make_files(folder, {JWK_SET: f"{len(keys)} public keys of {where}: {', '.join(keys)}"})
            typer.echo("Compare their ids with what the issuer's operator says; when they change, use a new folder.")
            return
    _make_files(
        folder,
        {
            KEY: "its private key",
            JWK_SET: f"its public key {key_id}",
            PROFILE: "the profile of `epsilon dev-issuer`",
        },
    )
    typer.echo("It authenticates machines by their keys, and no people: production refuses it.")
    _next((epsilon_command("dev-issuer", folder / PROFILE),))


@INIT.command(
    'regulator --did did:web:regulator.example --name "A regulator" --role SRO --service https://ledger.example '
    "--issuer https://login.example --log ledger/log.vkey",
    'bank-a --did did:web:bank-a.example --name "Bank A" --role TDC --service http://127.0.0.1:8000 '
    "--issuer http://127.0.0.1:8100 --log ledger/log.vkey",
    note="At a terminal it prompts for missing options. Nothing is sent.",
)
def party(  # noqa: PLR0913 - one argument an option
    folder: _Folder,
    *,
    did: Annotated[str, typer.Option(help="The organisation's DID.")] = "",
    name: Annotated[str, typer.Option(help="Its name, for people.")] = "",
    role: Annotated[list[str] | None, typer.Option(help="SRO, TSO, TDP, TDC or AUDITOR. May be repeated.")] = None,
    service: Annotated[str, typer.Option(help="The service's URL.")] = "",
    issuer: Annotated[str, typer.Option(help="The URL of its issuer of access tokens.")] = "",
    log: Annotated[str, typer.Option(metavar="FILE|KEY", help="The log's verifier key.")] = "",
) -> None:
    """Make an organisation's key, its registration for the SRO, and its profile."""
    from api.setup.key_files import read_verifier_key
    from api.setup.party_folder import CLAIM, JWK, KEY, PROFILE, PartyDecisions, make_party
    from ledger.command_line.shell_commands import epsilon_command

    with errors_reported(fields=_TYPED):
        given = {
            "--did": did,
            "--name": name,
            "--role": "\n".join(role or ()),
            "--service": service,
            "--issuer": issuer,
            "--log": log,
        }
        values = ask_missing(given, _PARTY)
        roles = values["--role"].split("\n")
        trusted = read_verifier_key(values["--log"])
        decisions = PartyDecisions(
            values["--did"], values["--name"], roles, values["--service"], values["--issuer"], trusted
        )
        signer = make_party(folder, decisions)
    _make_files(
        folder,
        {
            KEY: "its private key: back it up, it cannot be recovered",
            JWK: f"public key {signer.key_id}",
            CLAIM: "its registration: for the SRO",
            PROFILE: "its profile, which commands take",
        },
    )
    if "SRO" in roles:
        typer.echo("The first SRO of a ledger registers itself, others are registered by it:")
        _next((epsilon_command("key", "register", folder / PROFILE, folder / CLAIM),))
        return
    typer.echo("An SRO registers it: send claim.json, for `epsilon key register`. After that:")
    _next((epsilon_command("key", "show", folder / PROFILE, values["--did"]),))


def _pairs(option: str, given: Sequence[str]) -> dict[str, Path]:
    """What is given as NAME=FILE, by name. Raises: Malformed."""
    from ledger.wire.malformed import Malformed

    files: dict[str, Path] = {}
    for pair in given:
        name, equals, file = pair.rpartition("=")
        if not (name and equals and file) or name in files:
            raise Malformed(option, f"must be NAME=FILE, each name once, not {pair!r}")
        files[name] = Path(file)
    return files


def _make_files(folder: Path, files: Mapping[str, str], *, first: bool = True) -> None:
    from ledger.command_line.shell_commands import shown

    if first:
        typer.echo(f"In {shown(folder)}:")
    for name, what in files.items():
        typer.echo(f"  {name:13} {what}")


def _next(commands: Sequence[str]) -> None:
    typer.echo("\nNext:\n")
    for line in commands:
        typer.echo(f"  {line}")
