"""The organisations of the tests, their keys, their clean rooms and their time: one cast for every kind of test.

A key belongs to a name and is the same in every process.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.signer import Signer
from ledger.book.wall_clock import ClockWatch
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c

ORIGIN: Final = "epsilon.example/ledger"
SRO: Final = "did:web:sro.example"
TSO: Final = "did:web:tso.example"
HOSPITAL: Final = "did:web:hospital.example"
CLINIC: Final = "did:web:clinic.example"
LABORATORY: Final = "did:web:lab.example"
BANKS: Final = tuple(f"did:web:bank-{letter}.example" for letter in "abcd")
BANK_A, BANK_B, BANK_C, BANK_D = BANKS
MERGED: Final = "did:web:bank-ab.example"
"""What banks A and B become."""
LATE: Final = "did:web:bank-e.example"
"""An organisation that registers later than the others."""
BOTH: Final = "did:web:both.example"
"""A data provider that is a data consumer too."""
AUDITOR: Final = "did:web:auditor.example"
OPERATOR: Final = "did:web:operator.example"
STRANGER: Final = "did:web:stranger.example"
"""An organisation that is not on record."""
ROLES: Final = {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC", BANK_B: "TDC", MERGED: "TDC"}
"""Who is registered in a founded book, in this order."""
ATTESTER: Final = "https://attester.example"
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


def private_key(name: str) -> Ed25519PrivateKey:
    """The signing key of this name."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


LOG_KEY: Final = private_key("log")
LOG: Final = LogKey(ORIGIN, LOG_KEY.public_key().public_bytes_raw())


def short_name(did: str) -> str:
    """What is left of ``did:web:``."""
    return did.removeprefix("did:web:")


class Clock:
    """Time in Unix milliseconds, which a test moves by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        """Unix milliseconds."""
        return self.now


class MachineClock(Clock):
    """The two clocks of a machine: ``now``, which anyone may set, and the time since boot, which no one can."""

    def __init__(self, now: int, boot: str = "boot-1") -> None:
        super().__init__(now)
        self.boottime, self.boot = 1_000_000, boot

    def advance(self, ms: int) -> None:
        """Let time pass, awake or in suspend: both clocks count it."""
        self.now += ms
        self.boottime += ms

    def restart(self, ms: int) -> None:
        """Start the machine again after a time."""
        self.now += ms
        self.boottime, self.boot = 5_000, f"{self.boot}+"

    def watch(self, file: Path | None = None, *, pauses: bool = True) -> ClockWatch:
        """What a book holds the wall clock against."""
        return ClockWatch(file, pauses, lambda: self.boottime, self.boot)


class CleanRoom:
    """The two keys of a clean room: those of a name, or fresh ones where none is given."""

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            self.signer, self.sealing = Signer.generate(), X25519PrivateKey.generate()
        else:
            self.signer = Signer(private_key(f"room {name}"))
            self.sealing = X25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())

    def to_json(self) -> c.Object:
        """As a charge names it."""
        x = c.base64url(self.sealing.public_key().public_bytes_raw())
        return {"sealing": {"crv": "X25519", "kty": "OKP", "x": x}, "signing": self.signer.jwk}


def registration(did: str, signer: Signer, *roles: str) -> c.Object:
    """The body that registers an organisation, with its proof that it has the key."""
    claim: c.Object = {"key": signer.jwk, "name": short_name(did), "organisation": did, "roles": [*roles]}
    return {**claim, "possession": signer.sign(c.dump(claim))}
