"""A signer: the private half of an organisation's or a clean room's signing key (Ed25519)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from client.keys.private_file import read_private
from ledger.crypto import detached_jws
from ledger.crypto.public_keys import PublicKey
from ledger.files.atomic_file import create_file
from ledger.wire.canonical_json import Object, base64url, dump
from ledger.wire.malformed import Malformed

PEM_BYTES_MAX: Final = 4_096


class Signer:
    """Signs exact bytes. Its representation names the key, never the private part."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        """Sign with ``private``."""
        self._private = private
        self._public = detached_jws.public_key(private)

    @classmethod
    def generate(cls) -> Self:
        """A fresh key from the operating system's generator."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a PKCS #8 PEM file that only its owner may read. Raises: Malformed, OSError."""
        return cls(load_private(path))

    def save(self, path: Path | str) -> None:
        """Write a PKCS #8 PEM file, mode 0600; one that is there is never replaced. Raises: OSError."""
        pem = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        create_file(Path(path), pem)

    @classmethod
    def of_secret(cls, secret: bytes) -> Self:
        """The signer whose :meth:`secret` this is. Raises: Malformed."""
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(secret))
        except ValueError:
            raise Malformed("key", f"has {len(secret)} bytes, not 32") from None

    def secret(self) -> bytes:
        """The private key's 32 bytes, for what is sealed before it is written."""
        return self._private.private_bytes_raw()

    @property
    def key_id(self) -> str:
        """RFC 7638 thumbprint of the public key."""
        return self._public.thumbprint

    @property
    def public(self) -> PublicKey:
        """The public key."""
        return self._public

    @property
    def jwk(self) -> Object:
        """The public key as an OKP JWK."""
        return self._public.to_json()

    def sign(self, payload: bytes, call: detached_jws.Call | None = None) -> str:
        """A detached JWS over exactly these bytes, for one request if ``call`` is given."""
        return detached_jws.sign(self._private, payload, call)

    def jwt(self, kind: str, claims: Object, algorithm: str = "Ed25519") -> str:
        """A compact JWS of type ``kind`` over claims: a token, or an assertion for one (RFC 7519).

        Args:
            algorithm: the name of Ed25519 that the reader knows, ``EdDSA`` where it is none of RFC 9864.
        """
        header: Object = {"alg": algorithm, "kid": self.key_id, "typ": kind}
        signed = ".".join(base64url(dump(part)) for part in (header, claims))
        return f"{signed}.{base64url(self._private.sign(signed.encode('ascii')))}"

    def __repr__(self) -> str:
        """Name the key."""
        return f"Signer({self.key_id})"


def load_private(path: Path | str) -> Ed25519PrivateKey:
    """The private key in a PKCS #8 PEM file that only its owner may read. Raises: Malformed, OSError."""
    data = read_private(path, PEM_BYTES_MAX)
    try:
        private = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Malformed("key", f"the file {path} holds no private key in PEM without a passphrase") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise Malformed("key", f"the file {path} holds a key that is not Ed25519")
    return private


def load_secret(path: Path | str, size: int) -> bytes:
    """A secret of so many bytes, in a file that only its owner may read. Raises: Malformed, OSError."""
    data = read_private(path, size + 1)
    if len(data) != size:
        raise Malformed("key", f"the file {path} does not hold {size} bytes")
    return data
