"""Arguments and options that commands share, and the files that they name."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

COMPLETIONS_MAX: Final = 200
_NAMES_MAX: Final = 20
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def complete_charge_id(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the id of a charge in the shell; where the service does not answer, complete nothing."""
    from client.http.problems import Refused, Unreachable
    from client.profile.profile import Profile
    from ledger.wire.malformed import Malformed

    try:
        with Profile.load(Path(str(ctx.params["profile"]))).open(attempts=1) as service:
            ids = [name for name in service.charges() if name.startswith(incomplete)]
    except (KeyError, OSError, Malformed, Refused, Unreachable):
        return []
    return ids[:COMPLETIONS_MAX]


ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named client.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
CommandId = Annotated[str, typer.Option("--id", metavar="ID", help="Idempotency key; generated if omitted.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the decision and record nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Record it without confirmation.")]
ChargeId = Annotated[
    str, typer.Argument(metavar="CHARGE", help="The id of the charge.", autocompletion=complete_charge_id)
]
PartitionRef = Annotated[str, typer.Argument(metavar="PARTITION", help="provider/dataset/partition.")]


def time_of(text: str) -> datetime:
    """A time as the command line writes it. Raises: BadParameter."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time in UTC as 2026-01-31T00:00:00Z") from None


_TIME: Final = typer.Option(parser=time_of, metavar="TIME", help="In UTC: 2026-01-31T00:00:00Z.")
Time = Annotated[datetime, _TIME]
OptionalTime = Annotated[datetime | None, _TIME]


def milliseconds(time: datetime) -> int:
    """Unix milliseconds of a :data:`Time` from the command line."""
    return (time.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


def fresh_id(kind: str, given: str = "") -> str:
    """The given id, or a random one; made before the request, so that an error can name it for a retry."""
    import secrets

    return given or f"{kind}-{secrets.token_hex(8)}"


def account_holder(service: Service, partition: str, given: str) -> str:
    """The holder of an account, by the name of its organisations, one's DID, ``global`` or ``lineage:N``.

    Raises: Malformed, if no account or several accounts of the partition have the name; Refused, Unreachable.
    """
    from ledger.domain.facts import GLOBAL
    from ledger.wire.malformed import Malformed

    if given == GLOBAL or re.fullmatch("lineage:[0-9]{1,10}", given):
        return given
    accounts: Any = service.accounts(partition)["accounts"]
    named = [account for account in accounts if account["name"] == given]
    # A coalition's account names its members too, and is no one's own.
    own = [
        account
        for account in accounts
        if given in account["organisations"] and not account["name"].startswith("the coalition of ")
    ]
    holders = [str(account["holder"]) for account in named or own]
    if len(holders) != 1:
        known = ", ".join(sorted(str(account["name"]) for account in accounts)[:_NAMES_MAX])
        many = "several accounts" if holders else "no account"
        raise Malformed("holder", f"{given!r} names {many} of {partition}; the accounts are of: {known or 'no one'}")
    return holders[0]


def read_object(path: Path) -> Object:
    """Read a file that holds one JSON object, no larger than a command. Raises: Malformed, OSError."""
    from ledger.domain.command import COMMAND_BYTES_MAX
    from ledger.wire.canonical_json import parse
    from ledger.wire.malformed import Malformed

    with path.open("rb") as file:
        data = file.read(COMMAND_BYTES_MAX + 1)
    try:
        value = parse(data, COMMAND_BYTES_MAX)
    except Malformed as error:
        raise Malformed(f"{path}: {error.field}" if error.field else str(path), error.rule) from None
    if not isinstance(value, dict):
        raise Malformed(str(path), "must be an object")
    return value
