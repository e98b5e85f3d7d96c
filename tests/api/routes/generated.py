"""Generated requests sent by somebody whom they are for: with a token, and signed where a signature is asked for.

Half of the commands are sent as they were generated; the others are mended first, so that they get past the door: the
actor and the key are the caller's, and the id is one that nobody used. Some kinds are then given a body that is right.
"""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from requests.auth import AuthBase

from api.auth.authorisation import OPERATIONS, PUBLIC
from client.http.endpoints import BATCH, MODEL_KEYS, QUOTES, SIGNATURE_HEADER
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.api.two_of_each import Person, TwoOfEach
from tests.factories.people import BANK_A, CLINIC, CleanRoom

if TYPE_CHECKING:
    from requests import PreparedRequest

KINDS: Final = {**{path: kind for kind, path in PATHS.items()}, QUOTES: "charge"}


class Asking(AuthBase):
    """Shows the token of whoever an operation is for, and signs what is sent."""

    def __init__(self, pairs: TwoOfEach, operation: str, *, mends: bool = True) -> None:
        """Ask as the last of the roles that may; ``mends`` says whether commands may be sent other than generated."""
        self._mends = mends
        self._market = pairs
        self._role = "" if operation in PUBLIC else OPERATIONS[operation][-1]

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """The request, as its caller sends it."""
        person = self._market.people[self._role]
        path = urlsplit(request.url or "").path
        raw = request.body.encode() if isinstance(request.body, str) else request.body or b""
        assert isinstance(raw, bytes)
        request.headers.update(person.shown)
        if request.method == "POST" and path in KINDS:
            raw = self._market_command(raw, KINDS[path], person) if self._mends else raw
            request.headers["content-type"] = "application/json"
        if path == BATCH and self._mends:
            raw = self._batch(raw, person)
        if request.method == "PUT" and self._mends:
            path = f"{path.rpartition('/')[0]}/{c.digest(raw)}"
            request.url = f"{self._market.world.url}{path}"
        if raw != request.body:
            request.prepare_body(raw, None)
        if request.method == "PUT" or path in {*KINDS, MODEL_KEYS}:
            query = urlsplit(request.url or "").query
            name = c.digest(raw) if request.method == "PUT" else _name(raw, "model" if path == MODEL_KEYS else "id")
            at = f"{path}?{query}" if query else path
            request.headers[SIGNATURE_HEADER] = self._market.world.sign(
                person.signer, at, raw, name, request.method or ""
            )
        return request

    def _market_command(self, raw: bytes, kind: str, person: Person) -> bytes:
        """The command as it was generated, or mended."""
        number = next(_NUMBERS)
        try:
            command = json.loads(raw)
            if number % 2 and isinstance(command, dict):
                mended = {**command, "actor": person.did, "id": f"generated-{number}", "key_id": person.signer.key_id}
                good = self._body(kind, person) if number % 4 == 1 else None
                return c.dump(mended if good is None else {**mended, "body": good, "kind": kind, "v": 1})
        except (ValueError, Malformed, AssertionError, TypeError):
            # What has no canonical bytes is sent as it is.
            pass
        return raw

    def _batch(self, raw: bytes, person: Person) -> bytes:
        """As it was generated, or one charge that is right."""
        if next(_NUMBERS) % 3:
            return raw
        name = f"generated-{next(_NUMBERS)}"
        body = self._market.charge(self._market.own, CleanRoom())
        command = self._market.world.command_bytes(person.signer, person.did, "charge", body, name)
        signature = self._market.world.sign(person.signer, BATCH, command, name)
        return c.dump({"charges": [{"command": json.loads(command), "signature": signature}]})

    def _body(self, kind: str, person: Person) -> c.Object | None:
        pairs = self._market
        if kind == "charge" and person.did == BANK_A:
            return pairs.charge(pairs.own, CleanRoom())
        if kind == "coalition":
            return {"epsilon": "8", "members": [BANK_A, CLINIC]}
        if kind in {"void", "post"} and person is pairs.people["CCR"]:
            return {"charge": pairs.own.charge, **({"steps": 1} if kind == "post" else {})}
        return None


_NUMBERS: Final = count()


def _name(raw: bytes, field: str) -> str:
    try:
        command: Any = json.loads(raw)
    except ValueError:
        return "none"
    name = command.get(field) if isinstance(command, dict) else None
    return name if isinstance(name, str) and name else "none"


UNBOUNDED: Final = {"/v1/events"}
"""A stream does not end, so nothing waits for its end."""
