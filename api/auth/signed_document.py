"""Whose signature it is, over bytes that are no command: of a document, or of a deposit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.http.problems import Problem
from client.http.endpoints import SIGNATURE_HEADER
from ledger.crypto import detached_jws
from ledger.domain.outcomes import Code
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from ledger.domain.facts import Facts, SigningKey


def check_signed(facts: Facts, jws: str, payload: bytes) -> SigningKey:
    """The key that signed ``payload``, which an organisation or a clean room has registered. Raises: Problem (401)."""
    try:
        key_id = detached_jws.key_id_of(jws)
        key = facts.keys.get(key_id)
        if key is not None:
            detached_jws.verify(jws, payload, key.public)
            return key
        detail = f"no organisation and no clean room has registered the key {key_id}"
    except Malformed as fault:
        detail = str(fault)
    raise Problem(Code.SIGNATURE_INVALID, detail, field=SIGNATURE_HEADER)
