"""The secret identity of a charged clean room: two private keys, a deadline, and its request for the data keys."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.signer import Signer
from ledger.wire import canonical_json as c


@dataclass(frozen=True, slots=True)
class CleanRoomIdentity:
    """The identity that the charge names; all of it is secret.

    Attributes:
        deadline: of the charge, Unix ms.
        release: id and body of the command that requests the data keys; None before it is made.
    """

    signer: Signer
    sealing: X25519PrivateKey
    deadline: int
    release: tuple[str, c.Object] | None = None

    @classmethod
    def fresh(cls, deadline: int) -> CleanRoomIdentity:
        """New keys."""
        return cls(Signer.generate(), X25519PrivateKey.generate(), deadline)

    def to_json(self) -> c.Object:
        """For what is sealed before it is written."""
        name, body = self.release or ("", None)
        return {
            "deadline": self.deadline,
            "kind": "clean_room",
            "release": {"body": body, "id": name},
            "sealing": c.base64url(self.sealing.private_bytes_raw()),
            "signing": c.base64url(self.signer.secret()),
            "v": 1,
        }

    @classmethod
    def parse(cls, value: object) -> CleanRoomIdentity:
        """What :meth:`to_json` made. Raises: Malformed."""
        known = c.fields(value, "room", ("deadline", "kind", "release", "sealing", "signing", "v"))
        c.one_of(known["kind"], "room.kind", ("clean_room",))
        c.integer(known["v"], "room.v", 1, 1)
        release = c.fields(known["release"], "room.release", ("body", "id"))
        return cls(
            Signer.of_secret(c.unbase64url(known["signing"], "room.signing")),
            X25519PrivateKey.from_private_bytes(c.unbase64url(known["sealing"], "room.sealing")),
            c.integer(known["deadline"], "room.deadline", 0, 2**53 - 1),
            (release["id"], release["body"]) if release["body"] is not None else None,
        )

    def public(self) -> c.Object:
        """Both public keys, as a charge names them."""
        x = c.base64url(self.sealing.public_key().public_bytes_raw())
        return {"sealing": {"crv": "X25519", "kty": "OKP", "x": x}, "signing": self.signer.jwk}
