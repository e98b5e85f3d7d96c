"""A certified OpenID provider that is not ours (npm: oidc-provider): its tokens are believed."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import httpx
import pytest
from joserfc.jwk import RSAKey

from api.auth.access_tokens import Issuer, TokenInvalid, Tokens
from api.auth.issuer_bounds import IssuerBounds
from client.http.access_tokens import ClientCredentials
from client.http.problems import Refused
from client.keys.signer import Signer
from client.login.authorization_code import log_in
from client.profile.profile import Profile
from ledger.book.wall_clock import unix_ms
from ledger.verifier import LogKey
from tests.factories.people import BANK_A, HOSPITAL, ORIGIN

pytestmark = pytest.mark.soak

PROVIDER: Final = Path(__file__).with_name("oidc_provider.mjs")
CLIENTS: Final = Path(__file__).parents[3] / ".venv" / "clients"
_FORM: Final = re.compile(r'<form[^>]* action="([^"]+)"')
_PROMPT: Final = re.compile(r'name="prompt" value="([a-z]+)"')


class Running:
    """A provider that runs: its name, and the verifier of a service that trusts it within these bounds."""

    def __init__(self, issuer: str, signer: Signer) -> None:
        self.issuer, self.signer = issuer, signer
        with httpx.Client(trust_env=False) as http:
            known = http.get(f"{issuer}/.well-known/openid-configuration").json()
            self.token_endpoint, self._jwks = known["token_endpoint"], http.get(known["jwks_uri"]).content

    def verifier(self, **bounds: Any) -> Tokens:  # noqa: ANN401 - of the settings
        """The one of a service with this issuer's published keys."""
        return Tokens([Issuer.parse(self.issuer, self._jwks, IssuerBounds.parse(bounds, "issuer"))], ORIGIN, unix_ms)

    def machine(self, signer: Signer | None = None) -> str:
        """A token for the bank's machine, as every command of ours gets it."""
        return ClientCredentials(self.issuer, BANK_A, signer or self.signer, ORIGIN).token()


@contextmanager
def _running(algorithm: str) -> Iterator[Running]:
    """A provider that takes assertions by this name of Ed25519."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    signer, issuer = Signer.generate(), f"http://127.0.0.1:{port}"
    key = {**RSAKey.generate_key(2048).as_dict(private=True), "alg": "RS256", "kid": "b1k9", "use": "sig"}
    said = {
        "algorithm": algorithm,
        "audience": ORIGIN,
        "issuer": issuer,
        "keys": [key],
        "machine": {
            "client_id": BANK_A,
            "key": {**signer.jwk, "alg": algorithm, "kid": signer.key_id, "use": "sig"},
        },
        "person": {"claims": {"organisation": HOSPITAL, "roles": ["AUDITOR"]}},
        "port": port,
    }
    command = ["node", str(PROVIDER), str(CLIENTS), json.dumps(said)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if "listening\n" not in iter(process.stdout.readline, ""):
                pytest.fail(process.stderr.read()[-2_000:])
            yield Running(issuer, signer)
        finally:
            process.kill()


def _person(url: str) -> None:
    """A browser in which somebody logs in and consents, on the provider's own pages."""
    with httpx.Client(trust_env=False) as http:
        answer = http.get(url)
        while answer.is_redirect or _FORM.search(answer.text):
            here = str(answer.url)
            if answer.is_redirect:
                answer = http.get(urljoin(here, answer.headers["location"]))
                continue
            (action,), (prompt,) = _FORM.findall(answer.text), _PROMPT.findall(answer.text)
            answer = http.post(urljoin(here, action), data={"login": "ada", "password": "x", "prompt": prompt})


@pytest.mark.parametrize("algorithm", ["Ed25519", "EdDSA"])
def test_a_machine_gets_a_token_that_the_service_believes(algorithm: str) -> None:
    """Where the metadata says, by the name of the algorithm that it lists; of another key it gets none."""
    with _running(algorithm) as provider:
        assert provider.token_endpoint == f"{provider.issuer}/protocol/openid-connect/token"
        token = provider.machine()
        found = provider.verifier(organisations=[BANK_A]).verify(token, lambda _: None)
        assert (found.organisation, found.subject, found.roles) == (BANK_A, BANK_A, ())
        with pytest.raises(TokenInvalid, match="may not speak for"):
            provider.verifier(organisations=[HOSPITAL]).verify(token, lambda _: None)
        with pytest.raises(Refused, match=r"gave did:web:bank-a\.example no token"):
            provider.machine(Signer.generate())


def test_a_person_logs_in_with_a_browser_and_is_believed(tmp_path: Path) -> None:
    """By `epsilon login`, with its pages of login and consent: an auditor, if the issuer may give that role."""
    with _running("Ed25519") as provider:
        lines = {
            "service": "http://127.0.0.1:1",
            "log": LogKey(ORIGIN, bytes(32)).vkey,
            "issuer": provider.issuer,
            "client_id": "epsilon",
        }
        profile = tmp_path / "auditor.toml"
        profile.write_text("v = 1\n[client]\n" + "".join(f'{name} = "{one}"\n' for name, one in lines.items()))
        login = log_in(Profile.load(profile), lambda _: None, _person, wait_s=60)
        assert login.subject == "ada"
        bounds = {"organisations": [HOSPITAL], "roles": ["AUDITOR"]}
        found = provider.verifier(**bounds).verify(login.access_token, lambda _: None)
        assert (found.organisation, found.subject, found.roles) == (HOSPITAL, "ada", ("AUDITOR",))
        with pytest.raises(TokenInvalid, match="may not give the role"):
            provider.verifier(organisations=[HOSPITAL], roles=[]).verify(login.access_token, lambda _: None)
