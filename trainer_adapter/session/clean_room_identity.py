"""A clean room's secret identity, and the development attester that signs for it.

The attester issues an EAT (RFC 9711) under a key on disk, which attests nothing. It takes the place of the hardware's
attester in production, so that the path of a key is the same: challenge, evidence, decision, entry, sealed key. A
policy trusts it only by naming its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from joserfc import jws
from joserfc.jwk import OKPKey

from client.keys.signer import Signer
from client.service.service import Service
from ledger.wire import canonical_json as c

LIFE_S: Final = 300
SOFTWARE: Final = "epsilon-trainer"


@dataclass(frozen=True, slots=True)
class CleanRoomIdentity:
    """The identity that the charge names, two private keys and what they were used for; all of it is secret.

    Attributes:
        deadline: of the charge, Unix ms.
        release: id and body of the command that requests the data keys; None before it is made.
        leases: whether the charge leases its steps.
    """

    signer: Signer
    sealing: X25519PrivateKey
    deadline: int
    release: tuple[str, c.Object] | None = None
    leases: bool = False

    @classmethod
    def fresh(cls, deadline: int, *, leases: bool = False) -> CleanRoomIdentity:
        """New keys."""
        return cls(Signer.generate(), X25519PrivateKey.generate(), deadline, leases=leases)

    def to_json(self) -> c.Object:
        """For what is sealed before it is written."""
        name, body = self.release or ("", None)
        return {
            "deadline": self.deadline,
            "kind": "clean_room",
            **({"leases": True} if self.leases else {}),
            "release": {"body": body, "id": name},
            "sealing": c.base64url(self.sealing.private_bytes_raw()),
            "signing": c.base64url(self.signer.secret()),
            "v": 1,
        }

    @classmethod
    def parse(cls, value: object) -> CleanRoomIdentity:
        """What :meth:`to_json` made. Raises: Malformed."""
        members = c.fields(value, "room", ("deadline", "kind", "release", "sealing", "signing", "v"), ("leases",))
        c.one_of(members["kind"], "room.kind", ("clean_room",))
        c.integer(members["v"], "room.v", 1, 1)
        release = c.fields(members["release"], "room.release", ("body", "id"))
        return cls(
            Signer.of_secret(c.unbase64url(members["signing"], "room.signing")),
            X25519PrivateKey.from_private_bytes(c.unbase64url(members["sealing"], "room.sealing")),
            c.integer(members["deadline"], "room.deadline", 0, 2**53 - 1),
            (release["id"], release["body"]) if release["body"] is not None else None,
            c.boolean(members.get("leases", False), "room.leases"),
        )

    def public(self) -> c.Object:
        """Both public keys, as a charge names them."""
        x = c.base64url(self.sealing.public_key().public_bytes_raw())
        return {"sealing": {"crv": "X25519", "kty": "OKP", "x": x}, "signing": self.signer.jwk}


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
