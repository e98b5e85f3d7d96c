"""Files of keys: private ones as PEM (mode 0600, never replaced), public ones as a verifier key or a JWK Set."""

from __future__ import annotations

import hmac
import json
from errno import EEXIST
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client.keys.signer import Signer, load_private
from ledger.files.atomic_file import SHARED, create_file, replace_file
from ledger.log.verification import parse_log_key
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
    replace_file(path, jwk_set(signer), mode=SHARED)


def jwk_set(signer: Signer) -> bytes:
    """A public key as a JWK Set of one key (RFC 7517, section 5)."""
    return c.dump({"keys": [{**signer.jwk, "kid": signer.key_id}]}) + b"\n"


def write_once(path: Path, data: bytes) -> None:
    """Write a file, or leave the one that has these very bytes. Raises: FileExistsError, if it has others; OSError."""
    if not path.exists():
        create_file(path, data, mode=SHARED)
    elif path.read_bytes() != data:
        raise exists_error(path)


def exists_error(path: Path) -> FileExistsError:
    """The error of a file that is there and is not replaced."""
    return FileExistsError(EEXIST, "exists and is never replaced: name another folder, or move it away", str(path))


def read_verifier_key(named: str) -> LogKey:
    """A log's verifier key, from a file that holds it or from itself. Raises: Malformed, OSError."""
    path = Path(named)
    try:
        text = path.read_text("ascii") if path.is_file() else named
    except UnicodeDecodeError:
        text = ""
    return parse_log_key(text.strip())


def jwk_text(signer: Signer) -> bytes:
    """A public key as a JWK, one line, as ``epsilon key new`` prints it."""
    return json.dumps(signer.jwk).encode("ascii") + b"\n"


def service_secret(log_key: Ed25519PrivateKey, origin: str) -> bytes:
    """A secret of 32 bytes, the same in every process that serves this log's book."""
    return hmac.digest(log_key.private_bytes_raw(), b"epsilon-ledger service v1 " + origin.encode(), "sha256")
