"""Envelopes: made with another COSE library for both label sets and every algorithm, read, verified, and broken."""

import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cbor2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.wire.malformed import Malformed
from policy.depa.contract.cose_sign import ENVELOPE_BYTES_MAX, read_envelope
from policy.depa.contract.did_signatures import fits
from policy.depa.evaluation import Terms
from policy.depa.import_check import Checked, check
from tests.factories.depa_documents import CHECKED_AT, CONTRACT, PIPELINE, checked, refusals
from tests.factories.people import BANK_A, HOSPITAL, LABORATORY

MADE: dict[str, Any] = json.loads((Path(__file__).parent / "envelopes.json").read_text(encoding="utf-8"))
FIRST = next(iter(MADE))
PARTIES = (HOSPITAL, LABORATORY, BANK_A)


def _check(envelope: bytes, documents: list[Any]) -> Checked:
    return check(
        envelope, json.dumps(PIPELINE).encode(), Terms(CHECKED_AT), [json.dumps(one).encode() for one in documents]
    )


def _made(name: str = FIRST) -> tuple[bytes, list[Any]]:
    return base64.b64decode(MADE[name]["envelope"]), MADE[name]["did_documents"]


@pytest.mark.parametrize("name", list(MADE))
def test_another_library_s_envelopes_verify(name: str) -> None:
    """Both label sets; ES256, ES384, ES512, EdDSA and PS256; three signers, each added to the envelope before."""
    found = _check(*_made(name))
    assert refusals(found) == []
    assert found.code.exit_code == 0
    assert found.envelope is not None
    assert found.envelope.labels == name.split(maxsplit=1)[0]
    assert found.envelope.feed == "depa-training"
    assert found.envelope.participants == PARTIES
    assert [one.signer for one in found.envelope.signatures] == list(PARTIES)
    assert "signatures_absent" not in {reason.code for reason in found.reasons}


@pytest.mark.parametrize("name", list(MADE))
def test_every_byte_signed_is_covered(name: str) -> None:
    """One bit of payload, of the common header or of any signer's header: not one signature too many verifies."""
    data, documents = _made(name)
    parts = cbor2.loads(data).value
    payload = bytearray(parts[2])
    payload[payload.index(b'"terms"') + 1] ^= 1
    spoiled = cbor2.dumps(cbor2.CBORTag(98, [parts[0], parts[1], bytes(payload), parts[3]]))
    assert [one for one in refusals(_check(spoiled, documents)) if one[0] == "signature_invalid"] == [
        ("signature_invalid", f"envelope.signatures[{place}]") for place in range(3)
    ]
    header = cbor2.loads(parts[0])
    other = cbor2.dumps({**header, 3: "text/json"})
    spoiled = cbor2.dumps(cbor2.CBORTag(98, [other, parts[1], parts[2], parts[3]]))
    assert {code for code, _ in refusals(_check(spoiled, documents))} == {"signature_invalid"}


def test_what_is_not_protected_is_not_relied_on() -> None:
    """Receipts and whatever else stands unprotected change nothing."""
    data, documents = _made()
    parts = cbor2.loads(data).value
    signatures = [[one[0], {1: -8, 4: b"other"}, one[2]] for one in parts[3]]
    loose = cbor2.dumps(cbor2.CBORTag(98, [parts[0], {394: [b"receipt"], 491: ["nobody"]}, parts[2], signatures]))
    assert refusals(_check(loose, documents)) == []


def _signed(
    keys: list[Ed25519PrivateKey],
    signers: list[str],
    participants: list[str],
    header: dict[int, Any] | None = None,
    contract: dict[str, Any] | None = None,
) -> bytes:
    """An envelope put together by hand, as RFC 9052 has it."""
    payload = json.dumps(contract or CONTRACT).encode()
    protected = cbor2.dumps({3: "application/json", 491: participants})
    signatures = []
    for key, signer in zip(keys, signers, strict=True):
        own = cbor2.dumps({1: -8, 4: b"#k", 493: signer, **(header or {})})
        signatures.append([own, {}, key.sign(cbor2.dumps(["Signature", protected, own, b"", payload]))])
    return cbor2.dumps(cbor2.CBORTag(98, [protected, {}, payload, signatures]))


def _key(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


def _document(did: str, key: Ed25519PrivateKey) -> dict[str, Any]:
    x = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).decode().rstrip("=")
    method = {"id": f"{did}#k", "publicKeyJwk": {"kty": "OKP", "crv": "Ed25519", "x": x}}
    return {"id": did, "assertionMethod": [method], "verificationMethod": [method], "authentication": [f"{did}#k"]}


KEYS = [_key(1), _key(2), _key(3)]
DOCUMENTS = [_document(did, key) for did, key in zip(PARTIES, KEYS, strict=True)]
ALL = list(PARTIES)


def _certificate(key: Ed25519PrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "signer")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    return made.not_valid_after(datetime(2027, 1, 1, tzinfo=UTC)).sign(key, None).public_bytes(_der())


def _der() -> Any:  # noqa: ANN401 - an enumeration's member
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.DER


WRONG: list[tuple[str, Callable[[], tuple[bytes, list[Any]]]]] = [
    ("signature_missing", lambda: (_signed(KEYS[:2], ALL[:2], ALL), DOCUMENTS)),
    ("signature_invalid", lambda: (_signed([KEYS[1], KEYS[1], KEYS[2]], ALL, ALL), DOCUMENTS)),
    ("participants_differ", lambda: (_signed(KEYS[:2], ALL[:2], ALL[:2]), DOCUMENTS)),
    ("signer_not_participant", lambda: (_signed([*KEYS, KEYS[0]], [*ALL, "did:web:x.example"], ALL), DOCUMENTS)),
    ("signer_twice", lambda: (_signed([*KEYS, KEYS[0]], [*ALL, ALL[0]], ALL), DOCUMENTS)),
    ("signer_key_unknown", lambda: (_signed(KEYS, ALL, ALL), DOCUMENTS[:2])),
    ("signer_key_unknown", lambda: (_signed(KEYS, ALL, ALL, {4: b"#other"}), DOCUMENTS)),
    ("signature_algorithm", lambda: (_signed(KEYS, ALL, ALL, {1: -7}), DOCUMENTS)),
    ("signature_algorithm", lambda: (_signed(KEYS, ALL, ALL, {1: -257}), DOCUMENTS)),
    ("certificate_differs", lambda: (_signed(KEYS, ALL, ALL, {33: _certificate(_key(4))}), DOCUMENTS)),
    ("certificate_differs", lambda: (_signed(KEYS, ALL, ALL, {33: b"no certificate"}), DOCUMENTS)),
]


@pytest.mark.parametrize(("code", "make"), WRONG)
def test_each_fault_of_a_signature_is_refused_by_name(code: str, make: Callable[[], tuple[bytes, list[Any]]]) -> None:
    """The exit code is that of a signature that does not hold."""
    found = _check(*make())
    assert code in {reason.code for reason in found.reasons if reason.refused}
    assert found.code.exit_code == 6
    assert found.contract is None


def test_every_party_s_signature_by_hand_is_enough() -> None:
    """The same, with nothing wrong; and another participant may sign along."""
    assert refusals(_check(_signed(KEYS, ALL, ALL), DOCUMENTS)) == []
    room = "did:web:rooms.example"
    more = _signed([*KEYS, _key(4)], [*ALL, room], [*ALL, room])
    assert refusals(_check(more, [*DOCUMENTS, _document(room, _key(4))])) == []


def test_a_certificate_of_the_very_key_changes_nothing() -> None:
    """A chain that begins with the DID document's key is met in a list of one as well as by itself."""
    own = [{33: _certificate(key)} for key in KEYS]
    for chain in (own[0], {33: [own[0][33]]}):
        assert refusals(_check(_signed(KEYS[:1], ALL[:1], ALL[:1], chain, _alone()), DOCUMENTS[:1])) == []


def _alone() -> dict[str, Any]:
    """A contract of one body with itself, which one signature signs."""
    contract = json.loads(json.dumps(CONTRACT))
    contract["tdc"], contract["tdps"] = HOSPITAL, [HOSPITAL]
    for dataset in contract["datasets"]:
        dataset["provider"] = HOSPITAL
    return dict(contract)


def _tagged(value: object, tag: int = 98) -> bytes:
    return cbor2.dumps(cbor2.CBORTag(tag, value))


HEADER = cbor2.dumps({3: "application/json", 491: ALL})
SIGNATURE = [cbor2.dumps({1: -8, 493: HOSPITAL}), {}, b"s"]
HOSTILE: list[tuple[bytes, str]] = [
    (b"", "envelope"),
    (b"\xd8\x62", "envelope"),
    (b"\xd8\x62\x84", "envelope"),
    (_tagged([HEADER, {}, b"{}", [SIGNATURE]], 18), "envelope"),
    (_tagged({}), "envelope"),
    (_tagged([HEADER, {}, b"{}"]), "envelope"),
    (_tagged([HEADER, {}, None, [SIGNATURE]]), "envelope.payload"),
    (_tagged([HEADER, {}, b"{}", []]), "envelope.signatures"),
    (_tagged([HEADER, {}, b"{}", [SIGNATURE] * 33]), "envelope.signatures"),
    (_tagged([HEADER, {}, b"{}", [SIGNATURE[:2]]]), "envelope.signatures[0]"),
    (_tagged([HEADER, {}, b"{}", [SIGNATURE]]) + b"\x00", "envelope"),
    (_tagged([b"", {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([b"\xa0\xa0", {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([b"\x80", {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([b"\xa2\x03\x61a\x03\x61b", {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([b"\xbf\x03\x61a\xff", {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([b"\xa1\x18\x03\x61a", {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([cbor2.dumps({3: "a"}), {}, b"{}", [SIGNATURE]]), "envelope.protected.491"),
    (_tagged([cbor2.dumps({3: "a", 491: [ALL[0]] * 2}), {}, b"{}", [SIGNATURE]]), "envelope.protected.491"),
    (_tagged([cbor2.dumps({491: ALL}), {}, b"{}", [SIGNATURE]]), "envelope.protected.3"),
    (_tagged([cbor2.dumps({2: [99], 3: "a", 491: ALL}), {}, b"{}", [SIGNATURE]]), "envelope.protected.2"),
    (_tagged([cbor2.dumps({3: "a", 392: "f", 492: "f", 491: ALL}), {}, b"{}", [SIGNATURE]]), "envelope.protected"),
    (_tagged([HEADER, {}, b"{}", [[cbor2.dumps({493: ALL[0]}), {}, b""]]]), "envelope.signatures[0].protected.1"),
    (_tagged([HEADER, {}, b"{}", [[cbor2.dumps({1: -8}), {}, b""]]]), "envelope.signatures[0].protected"),
    (
        _tagged([HEADER, {}, b"{}", [[cbor2.dumps({1: -8, 493: "a", 494: "b"}), {}, b""]]]),
        "envelope.signatures[0].protected",
    ),
    (
        _tagged([HEADER, {}, b"{}", [[cbor2.dumps({1: -8, 4: "k", 493: "a"}), {}, b""]]]),
        "envelope.signatures[0].protected.4",
    ),
    (_tagged([HEADER, {1: cbor2.CBORTag(35, "(")}, b"{}", [SIGNATURE]]), "envelope"),
    (_tagged([HEADER, {1: cbor2.CBORTag(4, [9**20, 3])}, b"{}", [SIGNATURE]]), "envelope"),
    (b"\xd8\x62" + b"\x81" * 100_000, "envelope"),
    (b"\xd8\x62\x9b\x00\xff\xff\xff\xff\xff\xff\xff", "envelope"),
    (b"\xd8\x62" + bytes(ENVELOPE_BYTES_MAX), "envelope"),
]


@pytest.mark.parametrize(("data", "field"), HOSTILE)
def test_whatever_is_no_envelope_is_malformed_by_field(data: bytes, field: str) -> None:
    """Cut short, tagged, twice named, in a longer encoding, too many or too deep."""
    with pytest.raises(Malformed) as caught:
        read_envelope(data)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "documents",
    [
        [{"id": "hospital"}],
        [[]],
        [DOCUMENTS[0], DOCUMENTS[0]],
        [{**DOCUMENTS[0], "assertionMethod": {}}],
        [{**DOCUMENTS[0], "verificationMethod": "#k"}],
        [{**DOCUMENTS[0], "assertionMethod": [{}] * 65}],
        [{"id": f"did:web:x{place}.example"} for place in range(65)],
    ],
)
def test_a_did_document_that_is_none_is_malformed(documents: list[Any]) -> None:
    """Keys come from sound documents only."""
    with pytest.raises(Malformed, match="did_document"):
        _check(_made()[0], documents)


def _held(*methods: object, elsewhere: Sequence[object] = ()) -> list[Any]:
    """The documents of all parties, the first with these methods in place of its own."""
    return [{"id": ALL[0], "assertionMethod": [*methods], "verificationMethod": [*elsewhere]}, *DOCUMENTS[1:]]


OWN = DOCUMENTS[0]["assertionMethod"][0]
UNUSABLE: list[tuple[Any, str]] = [
    ({"id": "#k", "publicKeyJwk": {"kty": "oct", "k": "AA"}}, "without a public key"),
    ({"id": "#k"}, "without a public key"),
    ({"id": "#k", "publicKeyJwk": {"kty": "OKP", "crv": "Ed25519"}}, "no public key"),
    ({"id": "#k", "publicKeyJwk": {"kty": "OKP", "crv": "X25519", "x": "A" * 43}}, "of a kind"),
    ({"id": "#k", "publicKeyJwk": {**OWN["publicKeyJwk"], "x": f"{OWN['publicKeyJwk']['x']}=="}}, "no public key"),
    ({"id": "#k", "publicKeyJwk": {**OWN["publicKeyJwk"], "x": f"={OWN['publicKeyJwk']['x']}"}}, "no public key"),
    ("#k", "refers to a method"),
    ({}, "key id"),
    ({"id": "did:web:x.example#k", "publicKeyJwk": OWN["publicKeyJwk"]}, "key id"),
    (DOCUMENTS[1]["assertionMethod"][0], "key id"),
]


@pytest.mark.parametrize(("method", "why"), UNUSABLE)
def test_a_method_that_cannot_be_used_is_named_and_spoils_no_other(method: Any, why: str) -> None:  # noqa: ANN401 - JSON
    """It alone signs nothing; beside a sound one of another name that one signs."""
    envelope = _signed(KEYS, ALL, ALL)
    alone = _check(envelope, _held(method))
    assert [reason.code for reason in alone.reasons if reason.refused] == ["signer_key_unknown"]
    assert why in next(reason.text for reason in alone.reasons if reason.refused)
    other = {**OWN, "id": f"{ALL[0]}#other"}
    both = _signed(KEYS[:1], ALL[:1], ALL[:1], {4: b"#other"}, _alone())
    assert refusals(_check(both, _held(method, other)[:1])) == []


def test_the_methods_for_assertions_decide() -> None:
    """A reference to a method held elsewhere is one; a key that is only held elsewhere, or to log in, is none."""
    envelope = _signed(KEYS, ALL, ALL)
    assert refusals(_check(envelope, _held(f"{ALL[0]}#k", elsewhere=[OWN]))) == []
    assert [code for code, _ in refusals(_check(envelope, _held(elsewhere=[OWN])))] == ["signer_key_unknown"]
    rival = _document(ALL[0], _key(9))["assertionMethod"][0]
    assert [code for code, _ in refusals(_check(envelope, _held(OWN, rival)))] == ["signer_key_unknown"]


@pytest.mark.parametrize("name", MADE)
def test_keys_with_padding_are_read_as_depa_writes_them(name: str) -> None:
    """Each number of each key, padded to four characters."""
    envelope, documents = _made(name)
    for method in [one for document in documents for one in document["assertionMethod"]]:
        jwk = method["publicKeyJwk"]
        jwk.update({part: jwk[part] + "=" * (-len(jwk[part]) % 4) for part in ("x", "y", "n", "e") if part in jwk})
    assert any("=" in json.dumps(document) for document in documents)
    assert refusals(_check(envelope, documents)) == []


def test_a_bare_contract_is_refused_where_signatures_are_required() -> None:
    """So whoever puts bare JSON in the envelope's place does not pass as signed."""
    assert ("signatures_absent", "contract") in refusals(checked(signed=True))
    assert refusals(checked()) == []


_N = (1 << 2_047) + 1
KINDS: list[tuple[Any, set[int]]] = [
    (ec.generate_private_key(ec.SECP256R1()).public_key(), {-7}),
    (ec.generate_private_key(ec.SECP384R1()).public_key(), {-35}),
    (ec.generate_private_key(ec.SECP521R1()).public_key(), {-36}),
    (ec.generate_private_key(ec.SECP256K1()).public_key(), set()),
    (_key(1).public_key(), {-8, -19}),
    (rsa.RSAPublicNumbers(65_537, _N).public_key(), {-37, -38, -39}),
    (rsa.RSAPublicNumbers(65_537, _N >> 1 | 1).public_key(), set()),
    (rsa.RSAPublicNumbers(65_537, (1 << 8_191) + 1).public_key(), {-37, -38, -39}),
    (rsa.RSAPublicNumbers(65_537, (1 << 8_192) + 1).public_key(), set()),
]


@pytest.mark.parametrize(("key", "algorithms"), KINDS)
def test_each_kind_of_key_has_its_own_algorithms(key: Any, algorithms: set[int]) -> None:  # noqa: ANN401 - any public key
    """Curve and hash belong together; an RSA key is neither short nor endless; HMAC and RSA's old padding fit none."""
    every = (-7, -8, -9, -19, -35, -36, -37, -38, -39, -47, -257, -258, -259, -65_535, 0, 4, 5)
    assert {algorithm for algorithm in every if fits(algorithm, key)} == algorithms
