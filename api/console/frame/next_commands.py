"""The command that comes next where a list is empty, in the reader's role.

A list has commands of its own where something makes its rows; every other one shows what the role begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ledger.domain.roles import AUDITOR, SRO, TDC, TDP, TSO

OPERATOR: Final = "OPERATOR"
_VERIFY: Final = "epsilon verify book.sqlite --log log.vkey"
_PUBLISH: Final = "epsilon policy publish sro.toml policy.yaml"
_SIGN: Final = "epsilon contract sign tdp.toml contract.yaml > tdp.jws"
_ENTER: Final = "epsilon contract enter tdc.toml contract.yaml --signature tdp.jws"
_TRAIN: Final = "epsilon train job.toml"
_OPEN: Final = (
    "epsilon dataset open-partition tdp.toml partition.json --commitments commitments/share/commitments-1.bin"
)
FIRST: Final[Mapping[str, str]] = {
    SRO: "epsilon policy impact sro.toml policy.yaml",
    TDP: "epsilon dataset register tdp.toml dataset.yaml",
    TDC: "epsilon quote tdc.toml charge.json --contract contract.yaml",
    TSO: "epsilon dataset recommend tso.toml recommendation.yaml",
    AUDITOR: _VERIFY,
    OPERATOR: "epsilon db status book.sqlite",
}
"""What a role begins with, in the order in which one of several is chosen."""
NOT_ON_RECORD: Final = "epsilon init party NAME --did DID --role ROLE --service URL --issuer URL --log log.vkey"
"""For anyone who has no role in this log: it makes the registration that an SRO enters."""
_OF_LIST: Final[Mapping[str, Mapping[str, str]]] = {
    "accounts": {TDC: FIRST[TDC], TDP: _SIGN},
    "alerts": {role: f"epsilon account {role.lower()}.toml" for role in (SRO, TDP, TDC)},
    "announced": {TDC: _TRAIN, TDP: _SIGN},
    "caps": {SRO: _PUBLISH, TDP: _OPEN},
    "contracts": {TDP: _SIGN, TDC: _ENTER},
    "advice": {TDC: "epsilon plan run tdc.toml charge.json --contract contract.yaml"},
    "epsilon": {TDC: "epsilon plan run tdc.toml charge.json --contract contract.yaml"},
    "fields": {SRO: _PUBLISH},
    "forecast": {TDC: _TRAIN, TDP: "epsilon account tdp.toml"},
    "frozen": {SRO: "epsilon policy breaches sro.toml", TDP: "epsilon policy breaches tdp.toml"},
    "lasts": {TDC: _TRAIN},
    "merged": {SRO: "epsilon plan merger sro.toml DID DID", TDP: "epsilon plan merger tdp.toml DID DID"},
    "opened": {TDC: "epsilon evaluate job.toml"},
    "organisations": {SRO: "epsilon key register sro.toml organisation.json"},
    "partitions": {TDP: _OPEN, SRO: _PUBLISH},
    "pending": {TDC: _TRAIN, TDP: _SIGN},
    "policies": {SRO: _PUBLISH},
    "proposals": {role: f"epsilon contract propose {role.lower()}.toml contract.yaml" for role in (TDP, TDC)},
    "published": {SRO: "epsilon lineage publish sro.toml RUN"},
    "refused": {SRO: _PUBLISH},
    "register": {SRO: _PUBLISH},
    "released": {TDC: "epsilon release job.toml"},
    "runs": {TDC: _TRAIN, TDP: _SIGN},
    "sealed": {TDC: _TRAIN, TDP: _SIGN},
}
"""By the list's name and the role."""


class NextCommand(NamedTuple):
    """A command, and the role that runs it; an empty role is of who has none."""

    role: str
    text: str


def next_command(name: str, roles: Iterable[str]) -> NextCommand:
    """What the reader of an empty list runs next, in the first of its roles that has something to do there."""
    held = [role for role in FIRST if role in {*roles}]
    own = _OF_LIST.get(name, {})
    chosen = next((role for role in held if role in own), held[0] if held else "")
    return NextCommand(chosen, own.get(chosen) or FIRST.get(chosen) or NOT_ON_RECORD)


def every_command() -> set[str]:
    """All that any list may show."""
    return {NOT_ON_RECORD, *FIRST.values(), *(text for own in _OF_LIST.values() for text in own.values())}
