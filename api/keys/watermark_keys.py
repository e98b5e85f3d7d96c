"""Keys of the marks in models: one for each charge, derived from one secret of the key store and never stored.

The clean room of a charge gets its key sealed (HPKE, RFC 9180) to the sealing key that the charge names, so that
no one who carries it can read it. What is entered in the log before a model leaves is a commitment: the SHA-256 of the
key under a name of its own. With it the service can show later that a key was fixed before, and no one can search for a
key that fits a model.
"""

from __future__ import annotations

import hmac
from typing import Annotated, Final

from msgspec import Meta

from api.keys.data_key_store import KeyStore
from client.watermarks.sealed_key import commitment_of, seal_key
from ledger.domain.charge_record import Charge
from ledger.wire.field_types import Sha256
from ledger.wire.records import Record

_DOMAIN: Final = b"epsilon-ledger watermark key v1 "


class WatermarkKey(Record, frozen=True):
    """The key of a charge's mark, sealed to its clean room, and the commitment to it that a release names."""

    commitment: Sha256
    sealed: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$", description="32 bytes, in base64url")]


class WatermarkKeys:
    """The keys of one log's charges."""

    def __init__(self, store: KeyStore, origin: str) -> None:
        """Derived from the secret of ``store``, which is made at its first use."""
        self._store, self._origin = store, origin

    def key(self, charge: str) -> bytes | None:
        """The key of a charge's mark; None where the store holds no secret. Raises: KeyUnavailable."""
        secret = self._store.watermark_secret()
        if secret is None:
            return None
        return hmac.digest(secret.reveal(), _DOMAIN + f"{self._origin}\n{charge}".encode(), "sha256")

    def sealed(self, charge: Charge) -> WatermarkKey | None:
        """The same for the clean room of the charge. Raises: KeyUnavailable, Malformed."""
        key = self.key(charge.id)
        if key is None:
            return None
        return WatermarkKey(commitment=commitment_of(key), sealed=seal_key(key, charge.sealing, charge.id))

    def commitment(self, charge: str) -> str | None:
        """What a release of a marked model of the charge names. Raises: KeyUnavailable."""
        key = self.key(charge)
        return None if key is None else commitment_of(key)
