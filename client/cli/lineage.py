"""``epsilon lineage``: lineage events of organisations and models, and the exposure that follows from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from client.cli.arguments import ChargeId, Time, milliseconds, read_object
from client.cli.command_group import CommandGroup, Result
from client.cli.output import cell, objects, print_rows, time_text
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client.profile.profile import Profile
    from client.service.service import Service
    from ledger.wire.canonical_json import Json, Object

group = CommandGroup("lineage", "Mergers, acquisitions, collusion, splits and model transfers.")

_CONFIRMATION: Final = (
    "The effect is shown first, and confirmed at a terminal; elsewhere what changes an account needs --yes."
)
_Survivor = Annotated[str, typer.Argument(metavar="DID", help="The organisation that continues.")]
_Others = Annotated[list[str], typer.Argument(metavar="DID...", help="Organisations, each by its DID.")]
_Giver = Annotated[str, typer.Option(metavar="DID", help="Who had the model; default: who was charged for it.")]


def _merged(service: Service, body: Object) -> list[Object]:
    """The accounts of those that become one lineage."""
    listed = body.get("parents") or body.get("acquired") or body.get("organisations")
    named = [body.get("organisation"), *(listed if isinstance(listed, list) else ())]
    return service.merger_impact([*dict.fromkeys(str(did) for did in named if did is not None)])


def _handed_over(service: Service, body: Object) -> list[Object]:
    """The accounts that a handover changes, which the recipient's agreement does not alter."""
    return service.handover_impact({name: value for name, value in body.items() if name != "agreement"})


@group.signed_command(
    "merger",
    "sro.toml did:web:bank-ab.example did:web:bank-a.example did:web:bank-b.example",
    "sro.toml did:web:bank-ab.example did:web:bank-a.example did:web:bank-b.example --only-within-caps",
    note="`epsilon plan merger` previews the effect on all budgets. " + _CONFIRMATION,
    preview=_merged,
    question="Record the merger?",
)
def merge(
    organisation: _Survivor,
    parents: _Others,
    *,
    only_within_caps: Annotated[
        bool, typer.Option("--only-within-caps", help="Refuse the merger if an account would exceed its cap.")
    ] = False,
    proposed: Annotated[bool, typer.Option("--proposed", hidden=True, help="The earlier name.")] = False,
) -> Object:
    """Record a merger: the surviving organisation inherits the exposure (privacy loss) of all its parents."""
    return {
        "organisation": organisation,
        "parents": [*parents],
        **({"proposed": True} if only_within_caps or proposed else {}),
    }


@group.signed_command(
    "acquisition",
    "sro.toml did:web:bank-a.example did:web:fintech.example",
    "sro.toml did:web:bank-a.example did:web:fintech.example --json",
    note=_CONFIRMATION,
    preview=_merged,
    question="Record the acquisition?",
)
def acquire(organisation: _Survivor, acquired: _Others) -> Object:
    """Record an acquisition: the acquirer inherits the exposure of the acquired organisations."""
    return {"acquired": [*acquired], "organisation": organisation}


@group.signed_command(
    "collusion",
    "sro.toml did:web:bank-a.example did:web:bank-b.example --since 2026-03-01T00:00:00Z",
    "sro.toml did:web:bank-a.example did:web:bank-b.example --since 2026-03-01T00:00:00Z --json",
    note=_CONFIRMATION,
    preview=_merged,
    question="Record the collusion?",
)
def collude(organisations: _Others, *, since: Time) -> Object:
    """Record detected collusion: the organisations and their descendants are one lineage from then on."""
    return {"effective": milliseconds(since), "organisations": [*organisations]}


@group.signed_command(
    "split",
    "sro.toml did:web:bank-a.example did:web:bank-a-cards.example",
    "sro.toml did:web:bank-a.example did:web:bank-a-cards.example --json",
)
def split(
    organisation: Annotated[str, typer.Argument(metavar="DID", help="The organisation that is left.")],
    child: Annotated[str, typer.Argument(metavar="CHILD", help="The organisation that leaves, by its DID.")],
) -> Object:
    """Record a split: the child keeps the exposure that the organisation has now."""
    return {"child": child, "organisation": organisation}


@group.profile_command(
    "bank-b.toml run-1 did:web:bank-a.example --runs 3 > agreement.json",
    "bank-b.toml run-1 did:web:bank-a.example --runs 1 --json > agreement.json",
    note="Nothing is sent. All runs that the giver knows, of whatever size, then count on this organisation's accounts "
    "for good: ask it how many there are, and an SRO for their effect on the budgets. Once the giver knows more runs, "
    "sign again.",
)
def agree(
    caller: Profile,
    charge: ChargeId,
    giver: Annotated[str, typer.Argument(metavar="DID", help="Who gives the model.")],
    *,
    runs: Annotated[int, typer.Option(min=1, help="The most runs that the transfer may bring.")],
) -> Result:
    """Sign that this organisation takes a charge's model, for the giver that records the transfer."""
    from ledger.commands.organisation_lineage.model_transfer import TransferClaim
    from ledger.wire.canonical_json import dump
    from ledger.wire.records import convert, write

    stated: Object = {"charge": charge, "giver": giver, "recipient": caller.actor, "runs": runs}
    claim = write(convert(TransferClaim, {**stated, "use": "transfer_agreement"}, "claim"))
    say(f"You sign: {claim.decode()}", err=True)
    agreement: Object = {"runs": runs, "signature": caller.signer().sign(claim)}
    return Result(agreement, dump(agreement).decode())


@group.signed_command(
    "transfer",
    "bank-a.toml run-1 did:web:bank-b.example --agreement agreement.json",
    "sro.toml run-1 did:web:bank-c.example --giver did:web:bank-b.example",
    note="A TDC hands over a model of its own with the recipient's agreement; an SRO needs none. `epsilon plan "
    "transfer` previews the effect on all budgets, which an SRO is shown first.",
    preview=_handed_over,
)
def transfer(
    charge: ChargeId,
    recipient: Annotated[str, typer.Argument(metavar="DID", help="Who gets the model.")],
    *,
    giver: _Giver = "",
    agreement: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The recipient's, as `epsilon lineage agree` wrote it.")
    ] = None,
) -> Object:
    """Record the transfer of a charge's model: the recipient gets the giver's exposure with it."""
    agreed: Object = {} if agreement is None else {"agreement": read_object(agreement)}
    return {"charge": charge, "recipient": recipient, **({"giver": giver} if giver else {}), **agreed}


@group.signed_command(
    "publication",
    "sro.toml run-1",
    "sro.toml run-1 --giver did:web:bank-b.example --json",
    note="A model whose charge said `recipients: everyone` brings its own ancestry alone. `epsilon plan publication` "
    "previews the effect on all budgets. " + _CONFIRMATION,
    preview=_handed_over,
    question="Record the publication?",
)
def publish(charge: ChargeId, *, giver: _Giver = "") -> Object:
    """Record that a charge's model was published: every organisation, now and later, gets the giver's exposure."""
    return {"charge": charge, **({"giver": giver} if giver else {})}


@group.signed_command(
    "coalition",
    "sro.toml did:web:bank-a.example did:web:bank-b.example --epsilon 4",
    "sro.toml did:web:bank-a.example did:web:bank-b.example --epsilon 4 --json",
    note="`epsilon plan coalitions` lists the coalitions that would exceed a cap.",
)
def declare(
    members: _Others,
    *,
    epsilon: Annotated[str, typer.Option(help="The cap on their joint exposure, at each partition's δ.")],
) -> Object:
    """Declare a coalition: from now on its members stay under one cap together."""
    return {"epsilon": epsilon, "members": [*members]}


def _print_lineage(lineage: Object) -> None:
    rows = lineage_rows(lineage)
    print_rows(("entry", "kind", "organisation", "members", "since", "knows of"), rows)
    if lineage.get("complete") is not True:
        say(f"These are the nearest {len(rows)}; there are more.", err=True)


@group.read_command(
    "sro.toml did:web:bank-a.example", "bank-a.toml did:web:bank-a.example --json", table=_print_lineage
)
def show(
    service: Service,
    organisation: Annotated[str, typer.Argument(metavar="DID", help="The organisation to start from.")],
) -> Object:
    """Show an organisation's lineage graph: its node, the ancestors, and whose exposure each has."""
    return service.lineage(organisation)


def lineage_rows(lineage: Object) -> list[tuple[str, ...]]:
    """A row for each node of an answer: its entry, kind, organisation, members, time, and whose exposure it has."""
    nodes = objects(lineage.get("nodes"))
    known = {node.get("index"): node for node in nodes}
    return [_row(node, known) for node in nodes]


def _row(node: Object, known: Mapping[Json, Object]) -> tuple[str, ...]:
    return (
        cell(node.get("index")),
        cell(node.get("kind")),
        cell(node.get("organisation")),
        _members(node),
        time_text(node.get("time")),
        "; ".join(_parent(parent, known) for parent in objects(node.get("parents"))),
    )


def _members(node: Object) -> str:
    members = node.get("members")
    return ", ".join(map(cell, members)) if isinstance(members, list) else ""


def _name(node: Object) -> str:
    """A node in words: its members now, or the organisation that it was of."""
    whose = cell(node.get("organisation"))
    match node.get("kind"):
        case "coalition":
            return f"the coalition of {_members(node)}"
        case "model":
            return f"a model that {whose} gave away"
        case "public":
            return f"a model that {whose} made public"
        case _:
            return _members(node) or f"{whose}, before it changed"


def _parent(parent: Object, known: Mapping[Json, Object]) -> str:
    """Whose exposure is inherited: all of it, or what it was when the log had so many entries."""
    index, before = parent.get("node"), parent.get("before")
    name = _name(known[index]) if index in known else f"what entry {index} made"
    return name if before is None else f"{name}, before entry {before}"
