"""Files of keys: private ones as PEM (mode 0600, never replaced), public ones as a verifier key or a JWK Set."""

from __future__ import annotations

import hmac
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client.keys.signer import Signer, load_private
from ledger.files.atomic_file import SHARED, replace_file
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c


def signing_key(path: Path) -> Signer:
    """The signing key in a file; a fresh one, if there is no file. Raises: Malformed, OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        Signer.generate().save(path)
    return Signer.load(path)


def verifier_key(log_key: Path, origin: str) -> LogKey:
    """The public key of the log whose private key is in a file. Raises: Malformed, OSError."""
    return LogKey(origin, load_private(log_key).public_key().public_bytes_raw())


def write_verifier_key(path: Path, log: LogKey) -> None:
    """Write a log's verifier key (C2SP signed-note), one line. Raises: OSError."""
    replace_file(path, f"{log.vkey}\n".encode("ascii"), mode=SHARED)


def write_jwk_set(path: Path, signer: Signer) -> None:
    """Write an issuer's public key as a JWK Set (RFC 7517, section 5). Raises: OSError."""
    replace_file(path, c.dump({"keys": [{**signer.jwk, "kid": signer.key_id}]}) + b"\n", mode=SHARED)


def service_secret(log_key: Ed25519PrivateKey, origin: str) -> bytes:
    """A secret of 32 bytes, the same in every process that serves this log's book."""
    return hmac.digest(log_key.private_bytes_raw(), b"epsilon-ledger service v1 " + origin.encode(), "sha256")
