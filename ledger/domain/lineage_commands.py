"""The bodies of lineage commands: what has become of organisations, and what one has learnt from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_positive
from ledger.wire.malformed import Malformed

BODIES_MAX: Final = 64
"""Organisations that one lineage command names."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Organisations become one, by a merger or an acquisition: it knows all that they knew.

    Attributes:
        proposed: whether it is asked for beforehand, and may be denied; else it is a fact.
    """

    organisation: str
    parents: tuple[str, ...]
    proposed: bool = False


@dataclass(frozen=True, slots=True)
class Collude:
    """Organisations found to have shared what they know since ``effective`` (ms)."""

    organisations: tuple[str, ...]
    effective: int


@dataclass(frozen=True, slots=True)
class Split:
    """The child leaves the organisation, or is founded out of it, and keeps all that it knew."""

    organisation: str
    child: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """The model of a charge handed over; ``giver`` is who had it, the charge's author unless said."""

    charge: str
    recipient: str
    giver: str | None


@dataclass(frozen=True, slots=True)
class Publish:
    """The model of a charge made public by ``giver``, the charge's author unless said."""

    charge: str
    giver: str | None


@dataclass(frozen=True, slots=True)
class Declare:
    """A coalition: organisations that together stay under a cap of ε at each partition's δ."""

    members: tuple[str, ...]
    epsilon: str


LineageBody = Merge | Collude | Split | Transfer | Publish | Declare


def _bodies(value: object, field: str, least: int = 1) -> tuple[str, ...]:
    found = c.strings(value, field, BODIES_MAX)
    if len(found) < least:
        raise Malformed(field, f"must have {least} to {BODIES_MAX} items")
    return tuple(c.did(item, f"{field}[{place}]") for place, item in enumerate(found))


def _merger(body: c.Object) -> Merge:
    known = c.fields(body, "", ("organisation", "parents"), optional=("proposed",))
    return Merge(
        c.did(known["organisation"], "organisation"),
        _bodies(known["parents"], "parents"),
        c.boolean(known.get("proposed", False), "proposed"),
    )


def _acquisition(body: c.Object) -> Merge:
    known = c.fields(body, "", ("acquired", "organisation"))
    return Merge(c.did(known["organisation"], "organisation"), _bodies(known["acquired"], "acquired"))


def _collusion(body: c.Object) -> Collude:
    known = c.fields(body, "", ("effective", "organisations"))
    return Collude(
        _bodies(known["organisations"], "organisations", 2),
        c.integer(known["effective"], "effective", 0, c.INTEGER_MAX),
    )


def _split(body: c.Object) -> Split:
    known = c.fields(body, "", ("child", "organisation"))
    return Split(c.did(known["organisation"], "organisation"), c.did(known["child"], "child"))


def _transfer(body: c.Object) -> Transfer:
    known = c.fields(body, "", ("charge", "recipient"), optional=("giver",))
    return Transfer(c.name(known["charge"], "charge"), c.did(known["recipient"], "recipient"), _giver(known))


def _publication(body: c.Object) -> Publish:
    known = c.fields(body, "", ("charge",), optional=("giver",))
    return Publish(c.name(known["charge"], "charge"), _giver(known))


def _giver(known: c.Object) -> str | None:
    return c.did(known["giver"], "giver") if "giver" in known else None


def _coalition(body: c.Object) -> Declare:
    known = c.fields(body, "", ("epsilon", "members"))
    parse_positive(known["epsilon"], "epsilon")
    return Declare(_bodies(known["members"], "members", 2), known["epsilon"])


READERS: Final[dict[str, Callable[[c.Object], LineageBody]]] = {
    "merger": _merger,
    "acquisition": _acquisition,
    "collusion": _collusion,
    "split": _split,
    "transfer": _transfer,
    "publication": _publication,
    "coalition": _coalition,
}
"""By kind of command."""
