"""Ed25519 (RFC 8032, section 5.1.7): one rule for which signatures verify, whichever library checks it first.

The rule. With the 32 bytes A of a key and a signature of 32 bytes R and 32 bytes S (an integer, little-endian):

1. S < L, the order of the base point B.
2. A decodes to a point; y is taken modulo p, so that an A that is not canonical is not refused for that alone.
3. With h = SHA-512(R || A || message) mod L, the canonical encoding of [S]B - [h]A is equal to R, byte for byte. R is
   never decoded, and nothing is multiplied by the cofactor.

OpenSSL computes exactly this and decides. libsodium (the 1.0.20 that PyNaCl bundles) computes the same [S]B -
[h]A from the same bytes and compares it with R, in half the time; before that it refuses S >= L, and an A or R that is
of small order, and an A that is not canonical. So it accepts a subset: its acceptance is final, and OpenSSL decides on
what it refuses. A build that multiplied by the cofactor would accept more, so each process first runs the published
edge cases (:mod:`ledger.crypto.ed25519_vectors`) on both libraries and verifies nothing with a build that answers
otherwise. A signature that does not verify costs both checks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ledger.crypto.ed25519_vectors import VECTORS

KEY_BYTES = 32
SIGNATURE_BYTES = 64
Check = tuple[bytes, bytes, bytes]
"""A key's bytes, a signature's, and the message."""
_Verifies = Callable[[bytes, bytes, bytes], bool]
"""Whether a key's bytes, a signature's and a message's fit together; the first two have the right lengths."""


class UnknownLibrary(RuntimeError):  # noqa: N818 - what is the case
    """An installed library verifies by another rule than this program was tested with."""


def verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature verifies by the rule above. Raises: UnknownLibrary."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    return checked_libsodium()(key, signature, message) or openssl_verifies(key, signature, message)


@cache
def checked_libsodium() -> _Verifies:
    """Verification by libsodium, once both libraries have answered the edge cases. Raises: UnknownLibrary."""
    from nacl.bindings import crypto_sign_open
    from nacl.exceptions import BadSignatureError

    def verify(key: bytes, signature: bytes, message: bytes) -> bool:
        try:
            crypto_sign_open(signature + message, key)
        except BadSignatureError:
            return False
        return True

    check_library("libsodium (PyNaCl)", verify, stricter=True)
    check_library("OpenSSL (cryptography)", openssl_verifies)
    return verify


def check_library(name: str, verify: _Verifies, *, stricter: bool = False) -> None:
    """Check that a library answers the edge cases as the rule does, or as the ``stricter`` libsodium does.

    Raises:
        UnknownLibrary: naming the first case that it answers otherwise.
    """
    for number, (key, message, signature, valid, strictly_valid) in enumerate(VECTORS):
        if verify(key, signature, message) is not (strictly_valid if stricter else valid):
            raise UnknownLibrary(
                f"this build of {name} answers edge case {number} of Ed25519 otherwise than the build that this "
                "program was tested with: install the versions of PyNaCl and cryptography that its lock file pins"
            )


def openssl_verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether OpenSSL accepts a signature: the rule above."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True
