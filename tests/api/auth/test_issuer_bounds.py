"""Issuers are bound to organisations and roles; settings that leave open who gives a role are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from api.auth.access_tokens import Issuer, Token, TokenInvalid, Tokens
from api.auth.jwks_files import IssuerFiles
from api.cli.settings import Settings
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.people import AUDITOR, BANK_A, BANK_B, HOSPITAL

NOW_S: Final = 1_795_000_000
BANKS, STATE = "https://login.banks.example", "https://login.state.example"
KEY: Final = Signer.generate()
SERVE: Final = (
    '[serve]\nbook = "book.sqlite"\nlog_key = "log.pem"\norigin = "epsilon.example/ledger"\n'
    'host = "127.0.0.1"\nport = 8000\n[serve.issuers]\n'
)
BOUND: Final = f'"{BANKS}" = {{keys = "a.jwks", organisations = ["{BANK_A}"], roles = []}}\n'
UNBOUND: Final = f'"{STATE}" = "b.jwks"\n'


def load(folder: Path, issuers: str) -> Settings:
    """Settings with these issuers."""
    profile = folder / "serve.toml"
    profile.write_text(f"v = 1\n{SERVE}{issuers}")
    for name in ("a.jwks", "b.jwks"):
        (folder / name).write_bytes(c.dump({"keys": [KEY.jwk]}))
    return Settings.load(profile)


def shown(folder: Path, issuers: str, issuer: str, organisation: str, *roles: str) -> Token:
    """A token of an issuer, as a service with these settings takes it."""
    settings = load(folder, issuers)
    files = IssuerFiles(settings.issuers, bounds=settings.bounds)
    claims: c.Object = {
        "aud": "here",
        "client_id": "browser",
        "exp": NOW_S + 60,
        "iat": NOW_S,
        "iss": issuer,
        "jti": "1",
    }
    said: c.Object = {**claims, "organisation": organisation, "sub": "a", **({"roles": [*roles]} if roles else {})}
    return Tokens(files, "here", lambda: NOW_S * 1000).verify(KEY.jwt("at+jwt", said), lambda _: None)


def test_an_issuer_speaks_for_its_own_organisations_alone(tmp_path: Path) -> None:
    """And no other one speaks for these; of all others the one that is bound to none does."""
    both = BOUND + UNBOUND
    assert shown(tmp_path, both, BANKS, BANK_A).organisation == BANK_A
    assert shown(tmp_path, both, STATE, BANK_B).organisation == BANK_B
    assert shown(tmp_path, both, STATE, AUDITOR, "AUDITOR").roles == ("AUDITOR",)
    for issuer, did in ((BANKS, HOSPITAL), (BANKS, BANK_B), (STATE, BANK_A)):
        with pytest.raises(TokenInvalid, match=f"organisation: the issuer may not speak for {did}"):
            shown(tmp_path, both, issuer, did)
    for role in ("AUDITOR", "OPERATOR"):
        with pytest.raises(TokenInvalid, match=f"roles: the issuer may not give the role {role}"):
            shown(tmp_path, both, BANKS, BANK_A, role)
    # One issuer that stands alone is bound to nothing, as ever.
    assert shown(tmp_path, UNBOUND, STATE, BANK_A, "OPERATOR", "AUDITOR").roles == ("AUDITOR", "OPERATOR")


def test_two_issuers_do_not_both_give_a_role_by_accident(tmp_path: Path) -> None:
    """The settings are refused, with both names; said of both it is no accident."""
    for one in (
        '"a.jwks"',
        f'{{keys = "a.jwks", organisations = ["{BANK_A}"]}}',
        '{keys = "a.jwks", roles = ["AUDITOR"]}',
    ):
        with pytest.raises(Malformed, match=f"{BANKS} and {STATE} could both give AUDITOR: name the roles") as caught:
            load(tmp_path, f'"{BANKS}" = {one}\n{UNBOUND}')
        assert caught.value.field == "serve.issuers"
    said = 'roles = ["AUDITOR"]}\n'
    load(tmp_path, f'"{BANKS}" = {{keys = "a.jwks", {said}"{STATE}" = {{keys = "b.jwks", {said}')
    load(tmp_path, f'"{BANKS}" = {{keys = "a.jwks", roles = ["OPERATOR"]}}\n"{STATE}" = {{keys = "b.jwks", {said}')


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ('{keys = "a.jwks", roles = ["SRO"]}', "roles"),
        ('{keys = "a.jwks", organisations = ["bank"]}', "organisations"),
        ("{keys = 1}", "keys"),
        ('{organisations = ["did:web:a.example"]}', "keys"),
        ('{keys = "a.jwks", role = ["AUDITOR"]}', "role"),
    ],
)
def test_a_wrong_bound_is_named(tmp_path: Path, wrong: str, field: str) -> None:
    """A misspelled member binds nothing, so it is refused."""
    with pytest.raises(Malformed) as caught:
        load(tmp_path, f'"{BANKS}" = {wrong}\n')
    assert caught.value.field.startswith(f"serve.issuers.{BANKS}.{field}")


def test_bounds_stay_when_keys_are_read_again(tmp_path: Path) -> None:
    """A new file of keys changes keys alone."""
    now = [0.0]
    settings = load(tmp_path, BOUND)
    files = IssuerFiles(settings.issuers, lambda: now[0], settings.bounds)
    before = files()
    (tmp_path / "a.jwks").write_bytes(c.dump({"keys": [Signer.generate().jwk]}))
    now[0] = 60.0
    (issuer,) = files()
    assert isinstance(issuer, Issuer)
    assert (issuer.bounds, issuer.keys == before[0].keys) == (before[0].bounds, False)
    assert issuer.bounds.organisations == frozenset({BANK_A})
