"""The envelope: opens for one clean room and one release, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.hpke_envelope import SUITE, seal, unseal
from ledger.wire.canonical_json import Object, base64url
from ledger.wire.malformed import Malformed

REF = "did:web:hospital.example/digits/2026-q1"
DATA_KEY = bytes(range(32))
INFO: Object = {
    "charge": "run-1",
    "contract": "9f" * 32,
    "entry": 17,
    "evidence": "60" * 32,
    "key_release": "release-1",
    "not_after": 1_795_240_800_000,
    "v": 1,
}


def _envelope(private: X25519PrivateKey, data_key: bytes = DATA_KEY) -> dict[str, Any]:
    sealing = base64url(private.public_key().public_bytes_raw())
    return {"info": dict(INFO), "sealed": {REF: seal(data_key, sealing, INFO, REF)}, "suite": SUITE, "v": 1}


def test_the_clean_room_opens_it() -> None:
    """The private key and the expected release give the data key back."""
    private = X25519PrivateKey.generate()
    assert unseal(_envelope(private), private, {"charge": "run-1", "entry": 17}) == {REF: DATA_KEY}


def test_another_key_does_not_open_it() -> None:
    """A private key it was not sealed to opens nothing."""
    with pytest.raises(Malformed, match="does not open"):
        unseal(_envelope(X25519PrivateKey.generate()), X25519PrivateKey.generate(), {})


@pytest.mark.parametrize("name", sorted(INFO))
def test_every_part_of_info_is_bound(name: str) -> None:
    """Changing any one member of info leaves the sealed key closed."""
    private = X25519PrivateKey.generate()
    envelope = _envelope(private)
    value = envelope["info"][name]
    envelope["info"][name] = value + 1 if isinstance(value, int) else value[::-1]
    with pytest.raises(Malformed, match=r"envelope\.info\.v" if name == "v" else "does not open"):
        unseal(envelope, private, {})


def test_the_partition_is_bound() -> None:
    """A sealed key moved under another partition's name stays closed."""
    private = X25519PrivateKey.generate()
    envelope = _envelope(private)
    envelope["sealed"] = {REF.replace("q1", "q2"): envelope["sealed"][REF]}
    with pytest.raises(Malformed, match="does not open"):
        unseal(envelope, private, {})


def test_an_envelope_of_another_charge_is_refused() -> None:
    """The clean room compares info with what it asked for before it opens anything."""
    private = X25519PrivateKey.generate()
    with pytest.raises(Malformed, match=r"envelope\.info\.charge"):
        unseal(_envelope(private), private, {"charge": "run-2"})


@pytest.mark.parametrize(
    "change",
    [
        {"suite": "none"},
        {"v": 2},
        {"v": True},
        {"sealed": []},
        {"sealed": {REF: "AA=="}},
        {"sealed": {REF: ""}},
        {"sealed": {REF: 7}},
        {"info": {}},
        {"extra": 1},
    ],
)
def test_a_broken_envelope_is_malformed(change: dict[str, Any]) -> None:
    """Whatever is not an envelope is refused by name."""
    private = X25519PrivateKey.generate()
    with pytest.raises(Malformed):
        unseal({**_envelope(private), **change}, private, {})


def test_a_data_key_of_another_length_is_refused() -> None:
    """Thirty-two bytes, or no data key."""
    private = X25519PrivateKey.generate()
    with pytest.raises(Malformed, match="does not hold 32 bytes"):
        unseal(_envelope(private, b"short"), private, {})
