"""The bodies of commands that govern what was entered: revocations, decrees, notices and openings of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

REASON_MAX: Final = 2_000


@dataclass(frozen=True, slots=True)
class Revoke:
    """A TDP ends a contract, known by its document's digest: nothing new is admitted or released under it."""

    contract: str


@dataclass(frozen=True, slots=True)
class Decree:
    """An SRO lets one account begin anew against its cap; what was lost stays on record and counts for life."""

    partition: str
    holder: str
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """The clean room tells the providers which model, known by its digest, is to leave."""

    charge: str
    model: str


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A sealed model opened in an attested clean room, known by its two keys; ``nonce`` answers a challenge."""

    charge: str
    model: str
    signing: PublicKey
    sealing: PublicKey
    evidence: str
    nonce: str


GoverningBody = Revoke | Decree | Announce | OpenModel


def _revocation(body: c.Object) -> Revoke:
    return Revoke(c.sha256(c.fields(body, "", ("contract",))["contract"], "contract"))


def _decree(body: c.Object) -> Decree:
    known = c.fields(body, "", ("holder", "partition", "reason"))
    holder, ref = c.string(known["holder"], "holder", 40), c.string(known["partition"], "partition")
    kind, _, node = holder.partition(":")
    plain = node.isascii() and node.isdigit() and str(int(node)) == node
    if holder != "global" and not (kind == "lineage" and plain):
        raise Malformed("holder", "must be 'global' or 'lineage:' and the index of a node")
    return Decree(ref, holder, c.string(known["reason"], "reason", REASON_MAX))


def _notice(body: c.Object) -> Announce:
    known = c.fields(body, "", ("charge", "model"))
    return Announce(c.name(known["charge"], "charge"), c.sha256(known["model"], "model"))


def _opening(body: c.Object) -> OpenModel:
    known = c.fields(body, "", ("charge", "clean_room", "evidence", "model", "nonce"))
    room = c.fields(known["clean_room"], "clean_room", ("sealing", "signing"))
    return OpenModel(
        charge=c.name(known["charge"], "charge"),
        model=c.sha256(known["model"], "model"),
        signing=PublicKey.parse(room["signing"], "clean_room.signing", "Ed25519"),
        sealing=PublicKey.parse(room["sealing"], "clean_room.sealing", "X25519"),
        evidence=c.sha256(known["evidence"], "evidence"),
        nonce=c.key_bytes(known["nonce"], "nonce"),
    )


READERS: Final[dict[str, Callable[[c.Object], GoverningBody]]] = {
    "revocation": _revocation,
    "decree": _decree,
    "release_notice": _notice,
    "model_opening": _opening,
}
"""By kind of command."""
