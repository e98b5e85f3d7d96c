"""Data at rest: the exact bytes, and nothing but the very key, place and bytes opens them."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from client.keys.data_encryption import decrypt, encrypt
from ledger.wire.malformed import Malformed

REF = "did:web:hospital.example/scans/2026-q3"
KEY = bytes(range(32))
DATA = b"two records"


def _made_elsewhere(key: bytes, nonce: bytes, data: bytes, beside: bytes) -> bytes:
    """Nonce, ciphertext, tag: as another program would write them from the page."""
    sealer = Cipher(AES(key), GCM(nonce)).encryptor()
    sealer.authenticate_additional_data(beside)
    return nonce + sealer.update(data) + sealer.finalize() + sealer.tag


def test_what_another_program_wrote_opens() -> None:
    """The format is the page's, not merely our own inverse."""
    assert decrypt(KEY, REF, _made_elsewhere(KEY, b"twelve bytes", DATA, REF.encode())) == DATA


def test_what_we_write_is_of_that_format() -> None:
    """Nonce of 12, ciphertext as long as the data, tag of 16; the reference stands beside it."""
    stored = encrypt(KEY, REF, DATA)
    assert stored == _made_elsewhere(KEY, stored[:12], DATA, REF.encode())


@pytest.mark.parametrize("data", [b"", b"\0", b"x" * 100_003])
def test_any_data_come_back(data: bytes) -> None:
    """None, one byte, many."""
    assert decrypt(KEY, REF, encrypt(KEY, REF, data)) == data


def test_no_nonce_is_used_twice() -> None:
    """A nonce used twice under one key would give the data away."""
    assert len({encrypt(KEY, REF, DATA)[:12] for _ in range(500)}) == 500


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_counts(bit: int) -> None:
    """In nonce, ciphertext and tag alike."""
    stored = encrypt(KEY, REF, DATA)
    for place in range(len(stored)):
        changed = stored[:place] + bytes([stored[place] ^ 1 << bit]) + stored[place + 1 :]
        with pytest.raises(Malformed, match=r"^data: does not open"):
            decrypt(KEY, REF, changed)


def test_neither_less_nor_more_opens() -> None:
    """Cut at any place, from either end, or with a byte added at either end."""
    stored = encrypt(KEY, REF, DATA)
    cut = [stored[:size] for size in range(len(stored))] + [stored[size:] for size in range(1, len(stored))]
    for wrong in (*cut, stored + b"\0", b"\0" + stored, stored + stored):
        with pytest.raises(Malformed, match=r"^data: does not open"):
            decrypt(KEY, REF, wrong)


@pytest.mark.parametrize("other", [f"{REF} ", REF[:-1], REF.upper(), "", "did:web:hospital.example/scans/2026-q4"])
def test_another_partitions_place_does_not_open_it(other: str) -> None:
    """Though they share the data key; the fault names the place that was tried."""
    with pytest.raises(Malformed, match="does not open") as caught:
        decrypt(KEY, other, encrypt(KEY, REF, DATA))
    assert caught.value.rule.endswith(other)


@pytest.mark.parametrize("size", [0, 16, 24, 31, 33, 64])
def test_a_data_key_has_32_bytes(size: int) -> None:
    """AES-256 or nothing: a shorter key is not quietly AES-128, in either direction."""
    with pytest.raises(Malformed, match=r"^data_key: must have 32 bytes"):
        encrypt(bytes(size), REF, DATA)
    with pytest.raises(Malformed, match=r"^data_key: must have 32 bytes"):
        decrypt(bytes(size), REF, encrypt(KEY, REF, DATA))
