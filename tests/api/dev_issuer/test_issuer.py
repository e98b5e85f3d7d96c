"""The development issuer over HTTP: tokens for machines by signed assertion, for people by code and PKCE."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from api.auth.access_tokens import Issuer, Tokens
from api.dev_issuer.issuer import CODE_S, FORM_BYTES_MAX, DevelopmentIssuer, Person
from api.dev_issuer.routes import create_issuer_app
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.access_tokens import ASSERTION, ClientCredentials
from client.keys.signer import Signer
from ledger.book.wall_clock import unix_ms
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

AUDIENCE: Final = "epsilon.example/ledger"
BANK: Final = "did:web:bank-a.example"
COUNCIL: Final = "did:web:council.example"
REDIRECT: Final = "http://127.0.0.1:9/done"


@dataclass
class Place:
    """An issuer, a clock moved by hand, and one client's key."""

    url: str
    http: httpx.Client
    issuer: DevelopmentIssuer
    bank: Signer
    ahead_s: list[int] = field(default_factory=lambda: [0])

    @property
    def now(self) -> int:
        """Unix seconds, as the issuer has them."""
        return unix_ms() // 1000 + self.ahead_s[0]

    def assertion(self, changes: c.Object | None = None, signer: Signer | None = None) -> str:
        """The bank's assertion, with these claims changed; None takes one away."""
        claims: c.Object = {
            "aud": f"{self.url}/token",
            "exp": self.now + 60,
            "iat": self.now,
            "iss": BANK,
            "jti": secrets.token_hex(8),
            "sub": BANK,
            **(changes or {}),
        }
        known: c.Object = {name: value for name, value in claims.items() if value is not None}
        return (signer or self.bank).jwt("JWT", known)

    def token(self, assertion: str, **changes: str) -> httpx.Response:
        """What the token endpoint says to an assertion."""
        form = {
            "client_assertion": assertion,
            "client_assertion_type": ASSERTION,
            "grant_type": "client_credentials",
            **changes,
        }
        return self.http.post("/token", data=form)

    def code(self, verifier: str, **changes: str) -> httpx.Response:
        """Where choosing a person leads."""
        requested = {
            "client_id": "browser",
            "code_challenge": c.base64url(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
            "person": "asha",
            "redirect_uri": REDIRECT,
            "response_type": "code",
            "state": "s-1",
            **changes,
        }
        return self.http.get("/authorize", params=requested)

    def exchange(self, code: str, verifier: str, **changes: str) -> httpx.Response:
        """What the token endpoint says to a code."""
        form = {
            "client_id": "browser",
            "code": code,
            "code_verifier": verifier,
            "grant_type": "authorization_code",
            "redirect_uri": REDIRECT,
            **changes,
        }
        return self.http.post("/token", data=form)

    def believed(self, token: str) -> Any:  # noqa: ANN401 - the service's own reading
        """What the service makes of a token."""
        issuer = Issuer.parse(self.url, self.http.get("/jwks").content)
        return Tokens([issuer], AUDIENCE, lambda: self.now * 1000).verify(token, lambda _: None)


@pytest.fixture
def place() -> Iterator[Place]:
    """An issuer that knows one machine and one person."""
    listener, bank, ahead = listen(LOOPBACK, 0), Signer.generate(), [0]
    url = base_url(listener)
    people = {"asha": Person(COUNCIL, ("AUDITOR",))}
    issuer = DevelopmentIssuer(
        url, AUDIENCE, Signer.generate(), {BANK: bank.public}, people, lambda: unix_ms() + ahead[0] * 1000
    )
    with serving(create_issuer_app(issuer), listener), httpx.Client(base_url=url, trust_env=False) as http:
        yield Place(url, http, issuer, bank, ahead)


def _code_in(response: httpx.Response) -> str:
    assert response.status_code == 303
    return parse_qs(urlsplit(response.headers["location"]).query)["code"][0]


def test_a_machine_gets_a_token_that_the_service_believes(place: Place) -> None:
    """By the client's own code, and kept until shortly before it ends."""
    credentials = ClientCredentials(place.url, BANK, place.bank, AUDIENCE)
    first = credentials.token()
    known = place.believed(first)
    assert (known.organisation, known.roles, credentials.token()) == (BANK, (), first)


def test_a_person_gets_a_token_by_code_and_pkce(place: Place) -> None:
    """Discovery, the page, the choice, the code, the token; with state and issuer on the way back (RFC 9207)."""
    known = place.http.get("/.well-known/openid-configuration").json()
    assert (known["issuer"], known["code_challenge_methods_supported"]) == (place.url, ["S256"])
    page = place.http.get("/authorize", params={"client_id": "browser", "state": '"><script>'})
    assert "asha" in page.text
    assert "<script>" not in page.text
    verifier = secrets.token_urlsafe(48)
    chosen = place.code(verifier)
    back = parse_qs(urlsplit(chosen.headers["location"]).query)
    assert (back["state"], back["iss"]) == (["s-1"], [place.url])
    answer = place.exchange(back["code"][0], verifier).json()
    reported = place.believed(answer["access_token"])
    assert (reported.organisation, reported.subject, reported.roles) == (COUNCIL, "asha", ("AUDITOR",))
    assert answer["id_token"].count(".") == 2


def test_a_code_works_once_and_for_a_minute(place: Place) -> None:
    """Used twice, late, or tried with a wrong verifier, it is gone."""
    verifier = secrets.token_urlsafe(48)
    code = _code_in(place.code(verifier))
    assert place.exchange(code, verifier).status_code == 200
    assert place.exchange(code, verifier).json()["error"] == "invalid_grant"
    code = _code_in(place.code(verifier))
    assert place.exchange(code, secrets.token_urlsafe(48)).json()["error"] == "invalid_grant"
    assert place.exchange(code, verifier).json()["error"] == "invalid_grant"
    code = _code_in(place.code(verifier))
    place.ahead_s[0] += CODE_S
    assert place.exchange(code, verifier).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "change", [{"redirect_uri": "http://127.0.0.1:9/other"}, {"client_id": "another"}, {"code_verifier": "short"}]
)
def test_a_code_is_for_the_one_who_asked(place: Place, change: dict[str, str]) -> None:
    """The same redirect, client and verifier, or none."""
    verifier = secrets.token_urlsafe(48)
    code = _code_in(place.code(verifier))
    assert place.exchange(code, verifier, **change).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "change",
    [
        {"redirect_uri": "https://evil.example/done"},
        {"redirect_uri": "http://127.0.0.1.evil.example/"},
        {"redirect_uri": "http://user@evil.example/"},
        {"redirect_uri": "http://localhost/"},
        {"redirect_uri": "http://["},
        {"redirect_uri": "ftp://127.0.0.1/"},
        {"redirect_uri": "http://127.0.0.1:9/done?code=mine"},
        {"redirect_uri": "http://127.0.0.1:9/done#there"},
        {"redirect_uri": ""},
        {"code_challenge_method": "plain"},
        {"code_challenge": "short"},
        {"response_type": "token"},
        {"person": "nobody"},
    ],
)
def test_a_code_is_sent_nowhere_else(place: Place, change: dict[str, str]) -> None:
    """Off loopback, without S256 or for nobody: an error, and no redirect."""
    response = place.code("v" * 43, **change)
    assert (response.status_code, "location" in response.headers) == (400, False)


def test_an_assertion_works_once(place: Place) -> None:
    """RFC 7523, section 3, item 7: the same jti again is refused."""
    assertion = place.assertion()
    assert place.token(assertion).status_code == 200
    again = place.token(assertion)
    assert (again.status_code, again.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"aud": "https://other.example/token"}, "aud"),
        ({"exp": 1, "iat": 0}, "exp"),
        ({"exp": 253_402_300_799}, "exp"),
        ({"exp": "1795000000"}, "exp"),
        ({"iss": COUNCIL}, "sub"),
        ({"sub": COUNCIL, "iss": COUNCIL}, "sub"),
        ({"sub": True}, "sub"),
        ({"jti": None}, "jti"),
        ({"jti": 7}, "jti"),
        ({"more": 1}, "more"),
    ],
)
def test_a_wrong_assertion_is_refused_by_name(place: Place, changes: c.Object, says: str) -> None:
    """Correctly signed by the bank."""
    answer = place.token(place.assertion(changes))
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert says in answer.json()["error_description"]


def test_an_assertion_of_another_key_or_none_is_refused(place: Place) -> None:
    """A stranger's key under the bank's name, cut short, unsigned, or of another type of assertion."""
    good = place.assertion()
    unsigned = ".".join((c.base64url(b'{"alg":"none"}'), good.split(".")[1], ""))
    for text in (place.assertion(signer=Signer.generate()), good[:-4], good.rpartition(".")[0], unsigned, "", "a.b.c"):
        answer = place.token(text)
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert place.token(good, client_assertion_type="secret").json()["error"] == "invalid_client"
    assert place.token(good, grant_type="password").json()["error"] == "unsupported_grant_type"


@pytest.mark.parametrize(
    "body",
    [b"\xff", b"grant_type=a&grant_type=b", b"a" * (FORM_BYTES_MAX + 1), b"", b"&".join([b"a=b"] * 40)],
    ids=["bytes", "twice", "long", "empty", "many"],
)
def test_what_is_no_form_is_refused(place: Place, body: bytes) -> None:
    """With OAuth's own error, whatever the bytes."""
    answer = place.http.post("/token", content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 400
    assert answer.json()["error"] in {"invalid_request", "unsupported_grant_type"}


@pytest.mark.parametrize("url", ["http://0.0.0.0:1", "https://login.example", "http://localhost:1", "http://[::]:1"])
def test_it_is_on_this_machine_or_not_at_all(url: str) -> None:
    """Also when somebody builds one in a program."""
    with pytest.raises(Malformed, match="loopback"):
        DevelopmentIssuer(url, AUDIENCE, Signer.generate(), {}, {}, unix_ms)
