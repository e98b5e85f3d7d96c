"""Which Ed25519 signatures verify: by the rule in words, libsodium, OpenSSL, ours and the auditor's file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, product
from pathlib import Path
from typing import Final

import nacl.bindings
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from nacl.exceptions import BadSignatureError

from ledger.book.submitted_command import BookUnusable
from ledger.crypto.ed25519 import UnknownLibrary, check_library, checked_libsodium, openssl_verifies, verifies
from ledger.crypto.ed25519_vectors import VECTORS
from ledger.verifier import LogKey
from tests.factories.edwards25519 import BASE, TORSION, L, P, add, challenge, cofactored, decode, encode, rule, times
from tests.factories.stored import StoredWorld

WYCHEPROOF: Final = Path(__file__).with_name("wycheproof_ed25519.txt")
SECRET: Final = 0x1F2E3D4C5B6A79880123456789ABCDEF
NONCE: Final = 0xFEDCBA98765432100123456789
SMALL: Final = sorted({encode(point) for point in TORSION})
_LOOSE: Final = [(y | sign << 255).to_bytes(32, "little") for y in (0, 1, P - 1, P, P + 1) for sign in (0, 1)]
LOOSE: Final = sorted(set(_LOOSE) - set(SMALL))
"""Encodings of points of small order that are not canonical: y of p and more, and a sign of x = 0."""


def libsodium(key: bytes, signature: bytes, message: bytes) -> bool:
    """As the pinned build answers."""
    try:
        nacl.bindings.crypto_sign_open(signature + message, key)
    except BadSignatureError:
        return False
    return True


def signed(a: bytes, r: bytes, secret: int, nonce: int, message: bytes) -> bytes:
    """R as given, and the S of whoever knows the secret part of A and of R."""
    return r + ((nonce + challenge(r, a, message) * secret) % L).to_bytes(32, "little")


Case = tuple[str, bytes, bytes, bytes]
"""What is special, and a key, a signature and a message that is text."""
PUBLIC: Final = times(SECRET, BASE)
COMMITMENT: Final = times(NONCE, BASE)


def mixed_orders() -> Iterator[Case]:
    """A and R with each part of small order, for messages on which the equation holds and does not."""
    for here, there in product(range(8), repeat=2):
        a, r = encode(add(PUBLIC, TORSION[here])), encode(add(COMMITMENT, TORSION[there]))
        for number in range(1):
            message = b"mixed %d %d %d" % (here, there, number)
            yield "mixed", a, signed(a, r, SECRET, NONCE, message), message
        # Until [h] times the part of small order of A is that of R, taken away: what one equation needs.
        held = (b"held %d %d %d" % (here, there, number) for number in count())
        if (there and not here) or (here % 2 == 0 and there % 2) or (here == 4 and there % 4):
            continue
        message = next(one for one in held if (challenge(r, a, one) * here + there) % 8 == 0)
        yield "holds", a, signed(a, r, SECRET, NONCE, message), message


def small_orders() -> Iterator[Case]:
    """A, R or both of small order, in every encoding."""
    for a in [*SMALL, *LOOSE]:
        point = decode(a)
        assert point is not None
        order = next(number for number in (1, 2, 4, 8) if times(number, point) == (0, 1))
        r = encode(COMMITMENT)
        for residue in range(order):
            found = (b"small A %d" % number for number in count())
            message = next(one for one in found if challenge(r, a, one) % order == residue)
            yield "small A", a, signed(a, r, 0, NONCE, message), message
    a = encode(PUBLIC)
    for r in [*SMALL, *LOOSE]:
        for number in range(2):
            message = b"small R %d" % number
            yield "small R", a, signed(a, r, SECRET, 0, message), message
            yield "small both", r, signed(r, r, 0, 0, message), message


def scalars() -> Iterator[Case]:
    """S beyond its bound, and encodings of no point."""
    a = encode(PUBLIC)
    good = signed(a, encode(COMMITMENT), SECRET, NONCE, b"good")
    number = int.from_bytes(good[32:], "little")
    yield "plain", a, good, b"good"
    for more in range(1, 16):
        if number + more * L < 2**256:
            yield "S + L", a, good[:32] + (number + more * L).to_bytes(32, "little"), b"good"
    for bad in (L - 1, L, L + 1, 0, 1, 2**252, 2**256 - 1):
        yield "S", a, good[:32] + bad.to_bytes(32, "little"), b"good"
    no_point = next(one for one in (y.to_bytes(32, "little") for y in range(2, 50)) if decode(one) is None)
    yield "A is no point", no_point, good, b"good"
    yield "R is no point", a, signed(a, no_point, SECRET, NONCE, b"good"), b"good"


CASES: Final = [*mixed_orders(), *small_orders(), *scalars()]


def test_every_edge_of_the_group_has_one_answer() -> None:
    """The words, OpenSSL, ours and the auditor's file agree; what libsodium accepts, the words accept."""
    seen = set()
    for what, key, signature, message in CASES:
        answer = rule(key, signature, message)
        assert openssl_verifies(key, signature, message) is answer, (what, key.hex(), signature.hex(), message)
        assert verifies(key, signature, message) is answer, (what, key.hex(), signature.hex(), message)
        assert LogKey("log.example", key).verifies(message.decode(), signature) is answer, (what, key.hex())
        strict = libsodium(key, signature, message)
        assert answer or not strict, (what, key.hex(), signature.hex(), message)
        seen.add((what, answer, strict, cofactored(key, signature, message)))
    # The set is sharp: each of these was met.
    assert {("mixed", False, False, True), ("holds", True, True, True), ("small A", True, False, True)} <= seen
    assert {("small R", True, False, True), ("S + L", False, False, False), ("plain", True, True, True)} <= seen
    assert {("small A", False, False, True), ("small R", False, False, True)} <= seen


def _auditor(key: bytes, signature: bytes, message: bytes) -> bool:
    """As ``verifier.py`` answers of any message; a checkpoint's is text."""
    return LogKey("log.example", key).verifies_bytes(message, signature)


def test_the_published_vectors() -> None:
    """Chalkias et al. 2020: by the words, by each library, by ours and by the auditor's file; as their table says."""
    for number, (key, message, signature, valid, strict) in enumerate(VECTORS):
        answers = [one(key, signature, message) for one in (rule, openssl_verifies, verifies, _auditor)]
        assert answers == [valid] * 4, number
        assert libsodium(key, signature, message) is strict, number
    assert [number for number, one in enumerate(VECTORS) if one.valid] == [0, 1, 2, 3, 11]
    assert [number for number, one in enumerate(VECTORS) if one.strictly_valid] == [3]
    assert cofactored(VECTORS[4].key, VECTORS[4].signature, VECTORS[4].message)


def test_project_wycheproof() -> None:
    """151 vectors, signatures of other lengths among them."""
    lines = [line.split() for line in WYCHEPROOF.read_text().splitlines() if not line.startswith("#")]
    for key, message, signature, result in lines:
        raw = [b"" if one == "-" else bytes.fromhex(one) for one in (key, signature, message)]
        assert [one(*raw) for one in (verifies, _auditor)] == [result == "valid"] * 2, (key, message, signature)
    assert (len(lines), sum(line[3] == "valid" for line in lines)) == (151, 88)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=64), st.integers(0, 64 * 8 - 1))
def test_any_key_and_any_changed_bit(seed: bytes, message: bytes, bit: int) -> None:
    """What a key signed verifies; with any bit of it changed nothing accepts it."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    key, signature = private.public_key().public_bytes_raw(), private.sign(message)
    assert verifies(key, signature, message)
    assert libsodium(key, signature, message)
    changed = (int.from_bytes(signature, "little") ^ 1 << bit).to_bytes(64, "little")
    assert not libsodium(key, changed, message)
    assert not verifies(key, changed, message)


@pytest.mark.parametrize("length", [0, 31, 33, 63, 65, 96])
def test_other_lengths_verify_nothing(length: int) -> None:
    """Neither a key nor a signature of another length reaches a library."""
    _, key, signature, message = next(case for case in CASES if case[0] == "plain")
    assert not verifies((key * 4)[:length], signature, message)
    assert not verifies(key, (signature * 2)[:length], message)


def _unreduced(key: bytes, signature: bytes, message: bytes) -> bool:
    s = int.from_bytes(signature[32:], "little") % L
    return rule(key, signature[:32] + s.to_bytes(32, "little"), message)


@pytest.mark.parametrize("lenient", [cofactored, _unreduced], ids=["cofactored", "S not bounded"])
def test_another_build_of_a_library_is_refused(
    lenient: Callable[[bytes, bytes, bytes], bool], monkeypatch: pytest.MonkeyPatch, world: StoredWorld
) -> None:
    """A libsodium by another rule: nothing is verified with it, and no book opens, in words."""

    def crypto_sign_open(signed: bytes, key: bytes) -> bytes:
        if not lenient(key, signed[:64], signed[64:]):
            raise BadSignatureError("forged")
        return signed[64:]

    world.book.close()
    monkeypatch.setattr(nacl.bindings, "crypto_sign_open", crypto_sign_open)
    checked_libsodium.cache_clear()
    try:
        with pytest.raises(UnknownLibrary, match=r"libsodium \(PyNaCl\) answers edge case \d+"):
            verifies(*CASES[0][1:3], CASES[0][3])
        with pytest.raises(BookUnusable, match="install the versions of PyNaCl and cryptography"):
            world.open()
    finally:
        monkeypatch.undo()
        checked_libsodium.cache_clear()
    assert verifies(*CASES[-1][1:3], CASES[-1][3]) is False


def test_an_openssl_by_another_rule_is_refused() -> None:
    """It has the last word, so that it is held to the words: one that is stricter, or laxer, is refused."""
    for other in (libsodium, cofactored, _unreduced):
        with pytest.raises(UnknownLibrary, match=r"OpenSSL \(cryptography\) answers edge case"):
            check_library("OpenSSL (cryptography)", other)
