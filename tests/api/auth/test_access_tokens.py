"""Bad access tokens, each refused with 401 for its own reason; and whatever bytes come, a named error or nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import httpx
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, RSAKey

from api.auth.access_tokens import Issuer, TokenInvalid, Tokens
from client.keys.signer import Signer
from ledger.crypto.detached_jws import call_of, key_id_of, verify
from ledger.verifier import Note, VerificationError
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.attestation.token import Evidence
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import ServedWorld

NOW_S: Final = 1_795_000_000
AUDIENCE: Final = "epsilon.example/ledger"
ISSUER: Final = "https://login.example"
ED: Final = Signer.generate()
RSA_KEY: Final = rsa.generate_private_key(65_537, 2048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())
KEYS: Final = [
    ED.jwk,
    RSAKey.import_key(RSA_KEY.public_key()).as_dict(private=False),
    ECKey.import_key(EC_KEY.public_key()).as_dict(private=False),
]
TOKENS: Final = Tokens([Issuer.parse(ISSUER, json.dumps({"keys": KEYS}).encode())], AUDIENCE, lambda: NOW_S * 1000)
HEADER: Final = {"alg": "Ed25519", "kid": "any", "typ": "at+jwt"}
CLAIMS: Final = {
    "aud": AUDIENCE,
    "client_id": BANK_A,
    "exp": NOW_S + 300,
    "iat": NOW_S,
    "iss": ISSUER,
    "jti": "one",
    "sub": BANK_A,
}
Sign = Callable[[bytes], bytes]


def _ed(message: bytes) -> bytes:
    return ED._private.sign(message)  # noqa: SLF001 - a forger signs what it likes


def _rs(message: bytes) -> bytes:
    return RSA_KEY.sign(message, padding.PKCS1v15(), hashes.SHA256())


def _es(message: bytes) -> bytes:
    r, s = decode_dss_signature(EC_KEY.sign(message, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _hs(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def _none(_message: bytes) -> bytes:
    return b""


def token(header: object = HEADER, claims: object = CLAIMS, sign: Sign = _ed) -> str:
    """A compact JWS over whatever header and claims."""
    parts = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in (header, claims))
    signed = ".".join(map(c.base64url, parts))
    return f"{signed}.{c.base64url(sign(signed.encode()))}"


def believed(text: str) -> str:
    """The organisation that a token is believed to be of."""
    return TOKENS.verify(text, lambda _: None).organisation


@pytest.mark.parametrize(("algorithm", "sign"), [("Ed25519", _ed), ("RS256", _rs), ("ES256", _es)])
def test_a_good_token_is_believed_by_each_kind_of_key(algorithm: str, sign: Sign) -> None:
    """So the refusals below are for what is wrong, not for how these tests make tokens."""
    assert believed(token({**HEADER, "alg": algorithm}, sign=sign)) == BANK_A


def _claims(**changes: object) -> str:
    return token(claims={**CLAIMS, **changes})


def _without(name: str) -> str:
    return token(claims={key: value for key, value in CLAIMS.items() if key != name})


_STRANGER: Final = Signer.generate()
_RAW_KEY: Final = c.unbase64url(str(ED.jwk["x"]), "x")
_TWICE: Final = json.dumps(CLAIMS)[:-1].encode() + b', "sub": "did:web:other.example"}'
BAD: Final[dict[str, tuple[str, str]]] = {
    "alg none": (token({**HEADER, "alg": "none"}, sign=_none), "header.alg"),
    "alg None": (token({**HEADER, "alg": "None"}, sign=_none), "header.alg"),
    "alg HS256 with the public key": (token({**HEADER, "alg": "HS256"}, sign=partial(_hs, _RAW_KEY)), "header.alg"),
    "alg HS256 with the JWK": (token({**HEADER, "alg": "HS256"}, sign=partial(_hs, c.dump(ED.jwk))), "header.alg"),
    "alg EdDSA": (token({**HEADER, "alg": "EdDSA"}), "header.alg"),
    "alg PS256": (token({**HEADER, "alg": "PS256"}, sign=_rs), "header.alg"),
    "alg a list": (token({**HEADER, "alg": ["Ed25519"]}), "header.alg"),
    "RS256 said, ES256 made": (token({**HEADER, "alg": "RS256"}, sign=_es), "signature"),
    "ES256 said, RS256 made": (token({**HEADER, "alg": "ES256"}, sign=_rs), "signature"),
    "ES256 said, Ed25519 made": (token({**HEADER, "alg": "ES256"}), "signature"),
    "no signature": (token(sign=_none), "signature"),
    "zero signature": (token(sign=lambda _: bytes(64)), "signature"),
    "zero ES256": (token({**HEADER, "alg": "ES256"}, sign=lambda _: bytes(64)), "signature"),
    "foreign key": (token(sign=_STRANGER._private.sign), "signature"),  # noqa: SLF001 - as above
    "jwk inside": (token({**HEADER, "jwk": _STRANGER.jwk}, sign=_STRANGER._private.sign), "header.jwk"),  # noqa: SLF001
    "jku elsewhere": (token({**HEADER, "jku": "https://evil.example"}, sign=_STRANGER._private.sign), "signature"),  # noqa: SLF001
    "x5u elsewhere": (token({**HEADER, "x5u": "https://evil.example"}), "header.x5u"),
    "x5c inside": (token({**HEADER, "x5c": ["MIIB"]}), "header.x5c"),
    "crit": (token({**HEADER, "crit": ["exp"]}), "header.crit"),
    "b64 false": (token({**HEADER, "b64": False}), "header.b64"),
    "typ JWT": (token({**HEADER, "typ": "JWT"}), "header.typ"),
    "typ dpop": (token({**HEADER, "typ": "dpop+jwt"}), "header.typ"),
    "typ missing": (token({"alg": "Ed25519"}), "header.typ"),
    "aud another": (_claims(aud="epsilon.example/other"), "aud"),
    "aud among others": (_claims(aud=[AUDIENCE, "epsilon.example/other"]), "aud"),
    "aud missing": (_without("aud"), "aud"),
    "iss another": (_claims(iss="https://evil.example"), "iss"),
    "iss with a slash": (_claims(iss=f"{ISSUER}/"), "iss"),
    "iss missing": (_without("iss"), "iss"),
    "expired": (_claims(iat=NOW_S - 361, exp=NOW_S - 61), "exp"),
    "expired just now": (_claims(iat=NOW_S - 360, exp=NOW_S - 60), "exp"),
    "from the future": (_claims(iat=NOW_S + 61, exp=NOW_S + 300), "iat"),
    "not yet": (_claims(nbf=NOW_S + 61), "nbf"),
    "lives too long": (_claims(exp=NOW_S + 601), "exp"),
    "ends before it begins": (_claims(exp=NOW_S), "exp"),
    "exp missing": (_without("exp"), "exp"),
    "exp a string": (_claims(exp=str(NOW_S + 300)), "exp"),
    "exp a boolean": (_claims(exp=True), "exp"),
    "exp a float": (_claims(exp=NOW_S + 300.0), ""),
    "exp huge": (_claims(exp=10**30), ""),
    "iat missing": (_without("iat"), "iat"),
    "jti missing": (_without("jti"), "jti"),
    "jti a number": (_claims(jti=1), "jti"),
    "sub missing": (_without("sub"), "sub"),
    "client no DID": (_claims(client_id="bank"), "client_id"),
    "organisation no DID": (_claims(organisation=1), "organisation"),
    "roles a string": (_claims(roles="AUDITOR"), "roles"),
    "roles booleans": (_claims(roles=[True]), "roles[0]"),
    "members twice": (token(claims=_TWICE), "claims.sub"),
    "claims a list": (token(claims=[CLAIMS]), "claims"),
    "claims no JSON": (token(claims=b"{"), "claims"),
    "nested deep": (token(claims=b"[" * 3000), "claims"),
    "header a list": (token([HEADER]), "header"),
    "two parts": (token().rpartition(".")[0], "token"),
    "five parts": (f"{token()}.e30.e30", "token"),
    "padded": (f"{token()}==", "token"),
    "stray space": (token().replace(".", ". ", 1), "token"),
    "too long": (_claims(jti="x" * 9000), "token"),
    "not ASCII": (f"{token()}é", "token"),
    "empty": ("", "token"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_token_is_refused_for_its_own_reason(case: str) -> None:
    """Each has one fault; whatever can be signed is signed by the right key."""
    text, field = BAD[case]
    with pytest.raises(TokenInvalid) as caught:
        believed(text)
    told = str(caught.value).removeprefix("the access token is refused: ")
    assert told.partition(": ")[0] == field or not field


def test_a_token_cut_anywhere_is_refused() -> None:
    """At every byte, and with any one character left out."""
    good = token()
    for place in range(len(good)):
        for text in (good[:place], good[:place] + good[place + 1 :]):
            with pytest.raises(TokenInvalid):
                believed(text)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda raw: raw.decode("latin-1"))))
def test_whatever_text_comes_is_refused_by_name(text: str) -> None:
    """Of every parser that faces the network: its own error, or what it reads, and nothing else."""
    with pytest.raises(TokenInvalid):
        believed(text)
    for parse in (key_id_of, call_of, partial(verify, payload=b"{}", key=ED.public)):
        _refused(parse, text)
    _refused(Note.parse, text, VerificationError)
    _refused(Evidence.parse, text.encode())


@settings(deadline=None)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8), st.integers(0, 8), st.data())
def test_whatever_is_changed_in_a_good_one_is_refused_by_name(
    place: int, new: bytes, gone: int, data: st.DataObject
) -> None:
    """Bytes put in and taken out of the header and claims themselves, correctly signed or not.

    What is signed rightly may be a good token still; a signature over a plain command holds for one header alone.
    """

    def spoilt(raw: bytes) -> bytes:
        at = place % (len(raw) + 1)
        return raw[:at] + new + raw[at + gone :]

    header, claims = json.dumps(HEADER).encode(), json.dumps(CLAIMS).encode()
    which = data.draw(st.booleans())
    sign = data.draw(st.sampled_from([_ed, _none]))
    text = token(spoilt(header) if which else header, claims if which else spoilt(claims), sign)
    assert _refused(believed, text, TokenInvalid) or sign is _ed
    jws = ED.sign(b"{}")
    head, _, value = jws.partition("..")
    spelt = f"{c.base64url(spoilt(c.unbase64url(head, 'h')))}..{value}"
    assert _refused(partial(verify, payload=b"{}", key=ED.public), spelt) == (spelt != jws)


_ROOM: Final[dict[str, Any]] = CleanRoom().to_json()
BOUND: Final[c.Object] = {"charge": "run-1", "cnf": _ROOM, "nonce": "A" * 43, "plan": "0" * 64}
_RUNTIME: Final[c.Object] = {
    **{name: BOUND[name] for name in ("charge", "nonce", "plan")},
    "keys": [{"kid": name, **key} for name, key in _ROOM.items()],
}
EVIDENCE: Final[dict[str, tuple[c.Object, c.Object]]] = {
    "eat": (
        {"alg": "Ed25519", "kid": "any", "typ": "eat+jwt"},
        {
            **{"eat_nonce" if name == "nonce" else name: value for name, value in BOUND.items()},
            "dbgstat": "disabled-since-boot",
            "iss": ISSUER,
        },
    ),
    "azure, flat": (
        {"alg": "RS256", "kid": "any", "typ": "JWT"},
        {
            "x-ms-attestation-type": "sevsnpvm",
            "x-ms-runtime": _RUNTIME,
            "x-ms-sevsnpvm-is-debuggable": False,
        },
    ),
    "azure, nested": (
        {"alg": "RS256", "kid": "any", "typ": "JWT"},
        {
            "x-ms-isolation-tee": {"x-ms-attestation-type": "sevsnpvm", "x-ms-sevsnpvm-is-debuggable": False},
            "x-ms-runtime": {
                "client-payload": {"epsilon-ledger": base64.b64encode(json.dumps(_RUNTIME).encode()).decode()}
            },
        },
    ),
}
"""Header and claims of each form of attestation token, and all say the same."""


@pytest.mark.parametrize("form", EVIDENCE)
def test_good_evidence_is_read(form: str) -> None:
    """So what is refused below is refused for what was changed."""
    header, claims = EVIDENCE[form]
    read = Evidence.parse(token(header, claims).encode())
    assert (read.form, read.bound, read.debuggable) == (form.partition(",")[0], BOUND, False)


@pytest.mark.parametrize("form", EVIDENCE)
@settings(deadline=None)
@given(
    place=st.integers(0, 10_000),
    new=st.binary(min_size=1, max_size=8),
    gone=st.integers(0, 8),
    which=st.booleans(),
)
def test_evidence_that_is_changed_is_refused_by_name_or_says_what_it_says(
    form: str, place: int, new: bytes, gone: int, *, which: bool
) -> None:
    """Bytes put in and taken out of header or claims: it is safe only if it says so."""
    parts = [json.dumps(one).encode() for one in EVIDENCE[form]]
    at = place % (len(parts[which]) + 1)
    parts[which] = parts[which][:at] + new + parts[which][at + gone :]
    try:
        read = Evidence.parse(token(parts[0], parts[1]).encode())
    except Malformed:
        return
    said = json.loads(parts[1])
    assert read.claims == said
    hardware = said.get("x-ms-isolation-tee", said)
    stated = said.get("dbgstat") == "disabled-since-boot" or hardware.get("x-ms-sevsnpvm-is-debuggable") is False
    assert read.debuggable or stated
    if not which:
        assert read.bound == BOUND


def _refused(parse: Callable[[Any], object], value: object, error: type[Exception] = Malformed) -> bool:
    """Whether it is refused by name; any other error fails the test."""
    with suppress(error):
        parse(value)
        return False
    return True


def _asked(world: ServedWorld, *authorization: str) -> httpx.Response:
    headers = [("authorization", one) for one in authorization]
    return httpx.get(f"{world.url}/v1/partitions", headers=headers, trust_env=False)


def test_over_http_it_is_401_and_says_how_to_authenticate(quiet: ServedWorld) -> None:
    """Missing and invalid differ in code and challenge; two headers are none; the scheme has any case."""
    good = quiet.everybody.token(BANK_A)
    assert _asked(quiet, f"bEaReR {good}").status_code == 200
    for headers in ((), ("",), ("Bearer",), ("Basic YTpi",), (f"Bearer {good}", f"Bearer {good}")):
        response = _asked(quiet, *headers)
        assert (response.status_code, response.json()["code"]) == (401, "token_missing")
        assert response.headers["www-authenticate"] == "Bearer"
    for text in (good[:-1], f"{good} {good}", f"{good}, Bearer {good}", "e30.e30.e30"):
        response = _asked(quiet, f"Bearer {text}")
        assert (response.status_code, response.json()["code"]) == (401, "token_invalid")
        assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert good[:40] not in response.text


def test_a_clean_room_that_nobody_charged_is_nobody(quiet: ServedWorld) -> None:
    """Its own token is believed only once a charge on record names its key; an organisation's key signs none."""
    for signer in (CleanRoom().signer, quiet.bank):
        response = _asked(quiet, quiet.everybody.shown_by(signer)["authorization"])
        assert (response.status_code, response.json()["code"]) == (401, "token_invalid")


def test_a_clean_room_speaks_for_its_own_charge_alone(world: ServedWorld, room: CleanRoom) -> None:
    """A token that it signs in another's name, or as a person, is refused."""
    seconds = world.clock.now // 1000
    own: c.Object = {
        "aud": AUDIENCE,
        "client_id": room.signer.key_id,
        "exp": seconds + 300,
        "iat": seconds,
        "iss": room.signer.key_id,
        "jti": "one",
        "sub": room.signer.key_id,
    }
    assert world.http.get("/v1/charges/run-1", headers=_bearer(room, own)).status_code == 200
    for change in ({"sub": BANK_A}, {"client_id": BANK_A}, {"iss": world.everybody.url}, {"iss": BANK_A}):
        assert world.http.get("/v1/charges/run-1", headers=_bearer(room, {**own, **change})).status_code == 401
    person: c.Object = {**own, "organisation": "did:web:sro.example", "roles": ["AUDITOR"]}
    assert world.http.get("/v1/accounts", headers=_bearer(room, person)).status_code == 403


def _bearer(room: CleanRoom, claims: c.Object) -> dict[str, str]:
    return {"authorization": f"Bearer {room.signer.jwt('at+jwt', claims)}"}
