"""The development attester: an EAT (RFC 9711) signed by a key on disk, which attests nothing.

It takes the place of the hardware's attester in production, so that the path of a key is the same: challenge,
evidence, decision, entry, sealed key. A policy trusts it only by naming its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jws
from joserfc.jwk import OKPKey

from client.keys.signer import Signer
from client.service.service import Service
from ledger.wire import canonical_json as c

LIFE_S: Final = 300
SOFTWARE: Final = "epsilon-trainer"


@dataclass(frozen=True, slots=True)
class DevelopmentAttester:
    """Signs any claims; ``issuer`` is the name by which a policy trusts it."""

    issuer: str
    private: Ed25519PrivateKey

    def deposit_evidence(
        self, service: Service, signer: Signer, claims: c.Object, say: Callable[[str], None]
    ) -> tuple[str, str]:
        """Attest ``claims`` with a fresh nonce for their charge; the nonce, and the digest of the deposited token.

        Raises:
            Refused, Unreachable.
        """
        say("a development attester signs for this clean room: it attests nothing, and is not for production")
        nonce = service.challenge(str(claims["charge"]))
        token = self.attest({**claims, "eat_nonce": nonce}, int(service.clock()))
        return nonce, service.put_document(signer, token).document

    def attest(self, claims: c.Object, now_s: int) -> bytes:
        """A token over the clean room's claims (charge, plan, keys, nonce), valid for five minutes."""
        key = OKPKey.import_key(self.private)
        body: c.Object = {
            **claims,
            "dbgstat": "disabled-since-boot",
            "exp": now_s + LIFE_S,
            "iat": now_s,
            "iss": self.issuer,
            "swname": SOFTWARE,
        }
        header = {"alg": "Ed25519", "typ": "eat+jwt"}
        return jws.serialize_compact(header, c.dump(body), key, algorithms=["Ed25519"]).encode("ascii")
