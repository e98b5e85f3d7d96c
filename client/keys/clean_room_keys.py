"""The two keys of a clean room that trains by other means than ours: one signs, one opens data keys."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from client.keys.private_file import read_private
from client.keys.signer import PEM_BYTES_MAX, Signer
from ledger.crypto.public_keys import PublicKey
from ledger.files.atomic_file import create_file
from ledger.wire.canonical_json import Object, base64url
from ledger.wire.malformed import Malformed

SEALING_SUFFIX: Final = ".sealing.pem"


class RoomKeys(NamedTuple):
    """Fresh keys; one clean room is for one run."""

    signer: Signer
    sealing: X25519PrivateKey

    @classmethod
    def generate(cls) -> RoomKeys:
        """From the operating system's generator."""
        return cls(Signer.generate(), X25519PrivateKey.generate())

    @property
    def public(self) -> Object:
        """The public halves, as a charge names them."""
        x = base64url(self.sealing.public_key().public_bytes_raw())
        return {"sealing": PublicKey("X25519", x).to_json(), "signing": self.signer.jwk}

    @classmethod
    def load(cls, path: Path) -> RoomKeys:
        """What :meth:`save` wrote. Raises: Malformed, OSError."""
        sealing = path.with_suffix(SEALING_SUFFIX)
        if path.is_dir():
            raise Malformed("key", f"{path} is a folder: name a file for the key")
        if not sealing.exists():
            raise Malformed("key", f"{path} has no sealing key {sealing} beside it: name a new file, and both are made")
        try:
            private = load_pem_private_key(read_private(sealing, PEM_BYTES_MAX), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise Malformed("key", f"the file {sealing} holds no private key in PEM without a passphrase") from None
        if not isinstance(private, X25519PrivateKey):
            raise Malformed("key", f"the file {sealing} holds a key that is not X25519")
        return cls(Signer.load(path), private)

    def save(self, path: Path) -> tuple[Path, Path]:
        """Write both as PKCS #8 PEM, mode 0600: the signing key in ``path``, the other one beside it.

        Raises:
            FileExistsError, OSError: then neither is left.
        """
        sealing = path.with_suffix(SEALING_SUFFIX)
        self.signer.save(path)
        try:
            create_file(sealing, self.sealing.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        except OSError:
            path.unlink()
            raise
        return path, sealing
