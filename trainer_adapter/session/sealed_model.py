"""A trained model that waits in its folder: sealed, together with the signing key of the clean room that made it.

Nobody but an attested clean room opens it, each time by an entry of its own (:mod:`client.keys.sealed_model`). The key
goes with it because only the clean room of a charge may ask whether its model leaves: whoever opens the model asks in
its name. What is sealed is one line of RFC 8785 JSON, a line feed, and the model as safetensors:

    {"kind":"kept_model","signing":"<base64url, 32 bytes>","v":1}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LINE_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class KeptModel:
    """What is inside.

    Attributes:
        model: safetensors; known by its SHA-256 where it is announced and released.
        signer: of the clean room that trained it.
    """

    model: bytes
    signer: Signer

    def to_bytes(self) -> bytes:
        """As it is sealed; never written otherwise."""
        head: c.Object = {"kind": "kept_model", "signing": c.base64url(self.signer.secret()), "v": 1}
        return c.dump(head) + b"\n" + self.model

    @classmethod
    def parse(cls, data: bytes) -> KeptModel:
        """What :meth:`to_bytes` made. Raises: Malformed."""
        head, mark, model = data.partition(b"\n")
        if not mark:
            raise Malformed("model", "is no kept model: it has no first line")
        known = c.fields(c.parse(head, LINE_MAX, "model"), "model", ("kind", "signing", "v"))
        c.one_of(known["kind"], "model.kind", ("kept_model",))
        c.integer(known["v"], "model.v", 1, 1)
        return cls(model, Signer.of_secret(c.unbase64url(known["signing"], "model.signing")))
