"""The tokens of the page on identity providers, fed to the verifier that the service has."""

from __future__ import annotations

import json
import re
import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from joserfc.jwk import RSAKey

from api.auth.access_tokens import Issuer, TokenInvalid, Tokens
from api.auth.issuer_bounds import IssuerBounds
from ledger.wire import canonical_json as c
from tests.factories.people import BANK_A, HOSPITAL

PAGE: Final = Path(__file__).parents[3] / "docs" / "identity_providers.md"
NOW_S: Final = 1_795_000_000
KEY: Final = rsa.generate_private_key(65_537, 2048)
SHOWN: Final[dict[str, Any]] = {
    name: json.loads(text)
    for name, text in re.findall(r"```json ([a-z-]+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
}
FIXES: Final[dict[str, dict[str, Any]]] = {
    "header.typ": {"typ": "at+jwt"},
    "aud": {"aud": "epsilon.example/ledger"},
    "jti": {"jti": "kV9x"},
    "client_id": {"client_id": BANK_A},
    "exp": {"exp": 600},
}
"""By what each difference of an Entra token is refused for, what the service asks for instead."""


@cache
def published() -> bytes:
    """A key set with what identity providers add to a key, and with a key for encryption."""
    key = RSAKey.import_key(KEY.public_key()).as_dict(private=False)
    other = RSAKey.import_key(rsa.generate_private_key(65_537, 2048).public_key()).as_dict(private=False)
    more = {"x5c": ["MIIC"], "x5t": "q1", "x5t#S256": "q2"}
    listed = [
        {**key, "alg": "RS256", "kid": "b1k9", "use": "sig", **more},
        {**other, "alg": "RSA-OAEP", "use": "enc", **more},
    ]
    return json.dumps({"keys": listed}).encode()


def tokens(issuer: str, **bounds: Any) -> Tokens:  # noqa: ANN401 - of the settings
    """The verifier with one issuer."""
    said = IssuerBounds.parse(bounds, "issuer")
    return Tokens([Issuer.parse(issuer, published(), said)], "epsilon.example/ledger", lambda: NOW_S * 1000)


def signed(shown: dict[str, Any]) -> str:
    """A token as the page shows it, now, signed by the provider's key."""
    claims = {**shown["claims"]}
    for name in {"auth_time", "exp", "iat", "nbf"} & set(claims):
        claims[name] += NOW_S
    head = ".".join(c.base64url(json.dumps(one).encode()) for one in (shown["header"], claims))
    return f"{head}.{c.base64url(KEY.sign(head.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@pytest.mark.parametrize(
    ("name", "organisation", "roles"), [("keycloak-machine", BANK_A, ()), ("keycloak-person", HOSPITAL, ("AUDITOR",))]
)
def test_a_token_of_keycloak_set_up_so_is_believed(name: str, organisation: str, roles: tuple[str, ...]) -> None:
    """Within the bounds that the page sets, and not beyond."""
    issuer = SHOWN[name]["claims"]["iss"]
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    ((named, said),) = tomllib.loads(text)["serve"]["issuers"].items()
    assert (named, said.pop("keys")) == (issuer, "keycloak.jwks")
    found = tokens(issuer, **said).verify(signed(SHOWN[name]), lambda _: None)
    assert (found.organisation, found.roles, found.key_id) == (organisation, roles, "")
    with pytest.raises(TokenInvalid, match="may not speak for"):
        tokens(issuer, organisations=["did:web:other.example"]).verify(signed(SHOWN[name]), lambda _: None)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"typ": "JWT"}, "header.typ"),
        ({"alg": "EdDSA"}, "header.alg"),
        ({"aud": ["epsilon.example/ledger", "account"]}, "aud"),
        ({"exp": 900}, "exp"),
        ({"client_id": None}, "client_id"),
    ],
)
def test_what_keycloak_does_by_default_is_refused(changed: dict[str, Any], where: str) -> None:
    """Each of the settings is needed."""
    shown = deepcopy(SHOWN["keycloak-person"])
    for name, value in changed.items():
        shown["header" if where.startswith("header") else "claims"][name] = value
    with pytest.raises(TokenInvalid, match=rf"refused: {where}"):
        tokens(shown["claims"]["iss"]).verify(signed(shown), lambda _: None)


@pytest.mark.parametrize("kept", FIXES)
def test_each_difference_of_an_entra_token_is_refused(kept: str) -> None:
    """With every other one mended; and with all mended it would pass, so the page's table is whole."""
    shown, whole = deepcopy(SHOWN["entra"]), deepcopy(SHOWN["entra"])
    for where, said in FIXES.items():
        for one in (whole, shown) if where != kept else (whole,):
            one["header" if where.startswith("header") else "claims"].update(said)
    verifier = tokens(shown["claims"]["iss"])
    assert verifier.verify(signed(whole), lambda _: None).organisation == BANK_A
    with pytest.raises(TokenInvalid, match=rf"refused: {kept}"):
        verifier.verify(signed(shown), lambda _: None)
