"""Signatures of requests: each names its method, URL, time and id, as DPoP does (RFC 9449).

A captured request cannot be replayed at another URL or time; replayed as it is, within its time, it is the same command
and gets the same answer. The book verifies the signatures of commands; those over documents are verified here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from api.http.problems import Problem
from client.http.base_url import base_of
from client.http.endpoints import SIGNATURE_HEADER
from ledger.crypto import detached_jws
from ledger.domain.facts import Facts, SigningKey
from ledger.domain.key_terms import key_refusal
from ledger.domain.outcomes import Code
from ledger.wire.malformed import Malformed

SKEW_S: Final = 300


class Binding:
    """Checks signatures for one service."""

    def __init__(self, url: str, clock: Callable[[], int]) -> None:
        """Signatures name the service by ``url``; ``clock`` gives Unix milliseconds. Raises: Malformed."""
        self._url = base_of(url, "url")
        self._clock = clock

    def check(self, jws: str, method: str, path: str, id: str) -> None:  # noqa: A002 - the wire's name
        """Raises: Problem (401), unless the signature was made for this request, within five minutes of now."""
        try:
            self._check(jws, method, f"{self._url}{path}", id)
        except Malformed as error:
            raise Problem(Code.SIGNATURE_INVALID, str(error), field=SIGNATURE_HEADER) from None

    def _check(self, jws: str, method: str, url: str, id: str) -> None:  # noqa: A002 - the wire's name
        where = "signature.header"
        call = detached_jws.call_of(jws)
        if call is None:
            raise Malformed(where, "must name the request: htm, htu, iat and jti")
        for claim, given, required in (("htm", call.method, method), ("htu", call.url, url), ("jti", call.id, id)):
            if given != required:
                raise Malformed(f"{where}.{claim}", f"must be {required}")
        if abs(call.time_s - self._clock() // 1000) > SKEW_S:
            raise Malformed(f"{where}.iat", f"must lie within {SKEW_S} s of the service's clock")

    def registered_key(self, facts: Facts, jws: str, payload: bytes) -> SigningKey:
        """Verify a signature over a document or a deposit; its key, which is on record and in force.

        Raises:
            Problem: 401.
        """
        try:
            key_id = detached_jws.key_id_of(jws)
            key = facts.keys.get(key_id)
            detail = f"no organisation and no clean room has registered the key {key_id}"
            if key is not None:
                detail = key_refusal(facts, key_id, self._clock())
                detached_jws.verify(jws, payload, key.public)
                if not detail:
                    return key
        except Malformed as error:
            detail = str(error)
        raise Problem(Code.SIGNATURE_INVALID, detail, field=SIGNATURE_HEADER)
