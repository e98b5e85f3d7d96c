"""Tokens for everybody in these tests, chosen by what is sent: whoever signed it is who calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from hashlib import sha256
from typing import Final

import httpx

from api.auth.access_tokens import Issuer
from api.dev_issuer.issuer import DevelopmentIssuer
from client.http.access_tokens import CleanRoomCredentials
from client.http.endpoints import SIGNATURE_HEADER
from client.keys.signer import Signer
from ledger.commands.registry import CLIENT_KINDS
from ledger.crypto import detached_jws
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.people import AUDITOR

LIFE_S: Final = 300


class Everybody(httpx.Auth):
    """Puts the token of the signer into each request; an auditor's where nothing is signed.

    Clean rooms show their own; so does whoever asks for a challenge, which names a charge and is not signed.
    """

    requires_request_body = True

    def __init__(self, url: str, audience: str, clock: Callable[[], int]) -> None:
        """Tokens of the issuer at ``url``; ``clock`` gives Unix milliseconds."""
        self.url = url
        self._audience, self._clock = audience, clock
        self.signer = Signer.generate()
        self.organisations: dict[str, str] = {}
        self.roles: dict[str, str] = {}
        self.rooms: dict[str, Signer] = {}
        self.charges: dict[str, str] = {}

    def issuer(self) -> Issuer:
        """As the service believes it."""
        return Issuer.parse(self.url, c.dump({"keys": [self.signer.jwk]}))

    def token(self, client: str, **claims: c.Json) -> str:
        """A machine's token, with these claims changed."""
        now = self._clock() // 1000
        said: c.Object = {
            "aud": self._audience,
            "client_id": client,
            "exp": now + LIFE_S,
            "iat": now,
            "iss": self.url,
            "jti": "one",
            "sub": client,
        }
        return self.signer.jwt("at+jwt", {**said, **claims})

    def shown(self, client: str) -> dict[str, str]:
        """The header of a machine's token."""
        return {"authorization": f"Bearer {self.token(client)}"}

    def shown_by(self, room: Signer) -> dict[str, str]:
        """The header of a clean room's own token."""
        seconds = self._clock() // 1000
        return {"authorization": f"Bearer {CleanRoomCredentials(room, self._audience, lambda: seconds).token()}"}

    def auditor(self) -> str:
        """A person's."""
        return self.token(AUDITOR, organisation=AUDITOR, roles=["AUDITOR"])

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """One request, with its token."""
        if "authorization" not in request.headers:
            request.headers["authorization"] = f"Bearer {self._of(request)}"
        yield request

    def _of(self, request: httpx.Request) -> str:
        key_id = _signed_by(request)
        body = _body(request)
        requested = body.get("body")
        room = requested.get("clean_room") if isinstance(requested, dict) else None
        signing = room.get("signing") if isinstance(room, dict) else None
        if isinstance(signing, dict):
            self.charges[str(body["id"])] = c.base64url(sha256(c.dump(signing)).digest())
        if request.url.path == "/v1/challenges":
            key_id = self.charges.get(str(body.get("charge")), key_id)
        if key_id in self.rooms:
            return self.shown_by(self.rooms[key_id])["authorization"].removeprefix("Bearer ")
        if key_id in self.organisations:
            return self.token(self.organisations[key_id])
        wanted = _roles(request)
        actor = str(body.get("actor", ""))
        known = next((did for did, role in self.roles.items() if role in wanted), "")
        return self.token(actor or known) if actor or known else self.auditor()


class OfTheWorld(DevelopmentIssuer):
    """Believes assertions of today, as commands make them, and gives tokens of the world's own time."""

    world: Callable[[], int]

    def _times(self) -> c.Object:
        now = self.world() // 1000
        return {"exp": now + LIFE_S, "iat": now}


def _signed_by(request: httpx.Request) -> str:
    try:
        return detached_jws.key_id_of(request.headers.get(SIGNATURE_HEADER, ""))
    except Malformed:
        return ""


def _roles(request: httpx.Request) -> tuple[str, ...]:
    """Who may ask for it, where that is the kind of command that the path takes."""
    if request.url.path == "/v1/quotes":
        return ("TDC",)
    if request.method == "PUT":
        return ("SRO",)
    return next((kind.roles for kind in CLIENT_KINDS.values() if kind.path == request.url.path), ())


def _body(request: httpx.Request) -> dict[str, c.Json]:
    try:
        value = json.loads(request.content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
