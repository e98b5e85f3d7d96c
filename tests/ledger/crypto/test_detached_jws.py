"""Detached JWS with one algorithm and one header: every other spelling of a signature is refused."""

import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.crypto.detached_jws import Call, call_of, key_id_of, public_key, sign, verify
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

KEY = Ed25519PrivateKey.from_private_bytes(c.unbase64url("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A", "d"))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
PUBLIC = public_key(KEY)
PAYLOAD = b'{"id":"run-1"}'
GOOD = sign(KEY, PAYLOAD)
CALL = Call("POST", "https://ledger.example/v1/charges", 1_795_233_600, "run-1")
HEADER = {"alg": "Ed25519", "b64": False, "crit": ["b64"], "kid": PUBLIC.thumbprint}
BOUND = {**HEADER, **CALL.to_json()}
A4 = (
    "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc."
    "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
)


def test_rfc_8037_key() -> None:
    """RFC 8037, A.1 to A.3: the private key's public half and its thumbprint."""
    assert PUBLIC.x == "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    assert PUBLIC.thumbprint == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_rfc_8037_signature_is_what_the_primitive_makes_and_still_no_signature_of_ours() -> None:
    """RFC 8037, A.4: the same bytes from our primitive; as a JWS it is attached and of another ``alg``."""
    head, payload, value = A4.split(".")
    assert c.base64url(KEY.sign(f"{head}.{payload}".encode())) == value
    for text in (A4, f"{head}..{value}"):
        with pytest.raises(Malformed):
            verify(text, b"Example of Ed25519 signing", PUBLIC)


def test_the_bytes_signed_are_those_of_rfc_7797() -> None:
    """Section 3: ``protected || '.' || payload``, the payload as it is; the header exactly as documented."""
    head, _, value = GOOD.partition("..")
    assert json.loads(c.unbase64url(head, "h")) == HEADER
    KEY.public_key().verify(c.unbase64url(value, "s"), head.encode() + b"." + PAYLOAD)
    assert key_id_of(GOOD) == PUBLIC.thumbprint


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_signature_holds_for_its_own_bytes_only(payload: bytes, other: bytes) -> None:
    """Equal bytes verify; any other bytes do not."""
    signature = sign(KEY, payload)
    verify(signature, payload, PUBLIC)
    if other != payload:
        with pytest.raises(Malformed):
            verify(signature, other, PUBLIC)


@settings(deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.characters(min_codepoint=33, max_codepoint=126))
def test_no_character_of_a_signature_can_change(place: int, character: str) -> None:
    """Each spelling is the only one: no stray bit is passed over."""
    text = GOOD[:place] + character + GOOD[place + 1 :]
    if text != GOOD:
        with pytest.raises(Malformed):
            verify(text, PAYLOAD, PUBLIC)


def forged(header: object, key: Ed25519PrivateKey = KEY, *, in_order: bool = False) -> str:
    """A signature over whatever header, correctly made with ``key``; its members ``in_order``, as RFC 8785 has them."""
    head = c.base64url(json.dumps(header, separators=(",", ":"), sort_keys=in_order).encode())
    return f"{head}..{c.base64url(key.sign(head.encode() + b'.' + PAYLOAD))}"


def test_a_forged_header_equal_to_ours_would_pass() -> None:
    """So the refusals below are for the header's content, not for how the test makes it."""
    assert verify(forged(HEADER), PAYLOAD, PUBLIC) is None


def test_a_signature_for_one_request_says_which() -> None:
    """Plain ones say none; the members are signed, so that none can be changed, added or taken away."""
    bound = sign(KEY, PAYLOAD, CALL)
    assert (verify(bound, PAYLOAD, PUBLIC), call_of(bound), call_of(GOOD)) == (CALL, CALL, None)
    assert json.loads(c.unbase64url(bound.split(".")[0], "h")) == BOUND
    value = bound.rpartition(".")[2]
    for header in (HEADER, {**BOUND, "jti": "run-2"}, {**BOUND, "iat": CALL.time_s + 1}):
        head = c.base64url(json.dumps(header, separators=(",", ":")).encode())
        with pytest.raises(Malformed, match="does not verify"):
            verify(f"{head}..{value}", PAYLOAD, PUBLIC)
    for place in range(len(bound)):
        with pytest.raises(Malformed, match=r"^signature"):
            verify(bound[:place], PAYLOAD, PUBLIC)


HEADERS: dict[str, object] = {
    "alg none": {**HEADER, "alg": "none"},
    "alg EdDSA": {**HEADER, "alg": "EdDSA"},
    "alg HS256": {**HEADER, "alg": "HS256"},
    "alg in a list": {**HEADER, "alg": ["Ed25519"]},
    "no alg": {name: value for name, value in HEADER.items() if name != "alg"},
    "b64 true": {**HEADER, "b64": True},
    "b64 zero": {**HEADER, "b64": 0},
    "no crit": {name: value for name, value in HEADER.items() if name != "crit"},
    "crit empty": {**HEADER, "crit": []},
    "crit more": {**HEADER, "crit": ["b64", "exp"]},
    "jwk inside": {**HEADER, "jwk": PUBLIC.to_json()},
    "jku inside": {**HEADER, "jku": "https://evil.example/keys"},
    "kid of another key": {**HEADER, "kid": public_key(OTHER).thumbprint},
    "kid no thumbprint": {**HEADER, "kid": "key-1"},
    "a list": ["Ed25519"],
    "a float": {**HEADER, "b64": 0.0},
    "no method": {**HEADER, "htu": CALL.url, "iat": CALL.time_s, "jti": CALL.id},
    "method alone": {**HEADER, "htm": "POST"},
    "another method": {**BOUND, "htm": "GET"},
    "small letters": {**BOUND, "htm": "post"},
    "URL empty": {**BOUND, "htu": ""},
    "URL too long": {**BOUND, "htu": "x" * 501},
    "URL a list": {**BOUND, "htu": [CALL.url]},
    "time a string": {**BOUND, "iat": "1795233600"},
    "time a boolean": {**BOUND, "iat": True},
    "time a float": {**BOUND, "iat": 1795233600.5},
    "time negative": {**BOUND, "iat": -1},
    "id no name": {**BOUND, "jti": "run 1"},
    "id a number": {**BOUND, "jti": 1},
    "critical": {**BOUND, "crit": ["b64", "htu"]},
    "nonce": {**BOUND, "nonce": "n"},
}


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("case", HEADERS)
def test_any_other_header_is_refused(case: str, in_order: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The algorithm is pinned and a key is only looked up by its thumbprint."""
    with pytest.raises(Malformed, match=r"^signature"):
        verify(forged(HEADERS[case], in_order=in_order), PAYLOAD, PUBLIC)


@pytest.mark.parametrize("algorithm", ["Ed25519", "ES256", "RS256"])
def test_a_header_in_canonical_form_says_what_one_in_another_order_does(algorithm: str) -> None:
    """The first is read at once, the other member by member: the same request, and the same key."""
    said = []
    for in_order in (False, True):
        text = forged({**BOUND, "alg": algorithm}, in_order=in_order)
        said.append((call_of(text), key_id_of(text)))
    assert said == [(CALL, PUBLIC.thumbprint)] * 2


def test_a_member_that_is_named_twice_is_refused() -> None:
    """Readers differ on which of the two holds."""
    head = json.dumps(BOUND, separators=(",", ":"), sort_keys=True).replace('"jti"', '"jti":"run-0","jti"')
    with pytest.raises(Malformed, match=r"^signature.header"):
        call_of(f"{c.base64url(head.encode())}..{GOOD.rpartition('.')[2]}")


TEXTS: dict[str, Callable[[str, str], str]] = {
    "attached": lambda head, value: f"{head}.{c.base64url(PAYLOAD)}.{value}",
    "no signature": lambda head, _: f"{head}..",
    "no header": lambda _, value: f"..{value}",
    "one dot": lambda head, value: f"{head}.{value}",
    "four parts": lambda head, value: f"{head}..{value}.",
    "padded": lambda head, value: f"{head}..{value}==",
    "space": lambda head, value: f" {head}..{value}",
    "newline": lambda head, value: f"{head}..{value}\n",
    "short": lambda head, value: f"{head}..{value[:-4]}",
    "long": lambda head, value: f"{head}..{value}AAAA",
    "very long": lambda head, value: f"{head}..{value}{'A' * 1000}",
    "not ASCII": lambda head, value: f"{head}é..{value}",
    "empty": lambda *_: "",
}


@pytest.mark.parametrize("case", TEXTS)
def test_any_other_shape_is_refused(case: str) -> None:
    """Attached, cut, padded or merely odd: refused by name, never a crash."""
    with pytest.raises(Malformed, match=r"^signature"):
        verify(TEXTS[case](*GOOD.split("..")), PAYLOAD, PUBLIC)


def test_another_key_is_refused_even_when_it_signs_under_our_name() -> None:
    """Neither its own good signature nor one with our key's ``kid`` verifies."""
    for text in (sign(OTHER, PAYLOAD), forged(HEADER, OTHER)):
        with pytest.raises(Malformed, match=r"^signature"):
            verify(text, PAYLOAD, PUBLIC)
