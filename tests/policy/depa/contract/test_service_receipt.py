"""Receipts of the contract service: built as its ledger builds them, item by item; accepted; forged in each part."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import cbor2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from typer.testing import CliRunner, Result

from ledger.domain.outcomes import Code
from ledger.wire.malformed import Malformed
from policy.cli.depa import app
from policy.depa.contract.service_receipt import read_service
from policy.depa.evaluation import Terms
from policy.depa.import_check import Checked, Registration, check
from tests.factories.depa_documents import CHECKED_AT, PIPELINE, refusals
from tests.policy.depa.contract.test_cose_sign import MADE

SERVICE_ID = "5f1e"
REGISTERED = CHECKED_AT // 1_000 - 3_600
SERVICE_KEY, NODE_KEY, OTHER_KEY = (ec.derive_private_key(seed, ec.SECP384R1()) for seed in (11, 12, 13))
INTERNAL = (sha256(b"write set").digest(), b"ce:2.37:" + b"0" * 64)


def _certificate(key: ec.EllipticCurvePrivateKey, name: str, issuer: ec.EllipticCurvePrivateKey) -> bytes:
    service = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "CCF Service")])
    made = x509.CertificateBuilder(serial_number=1, issuer_name=service).public_key(key.public_key())
    made = made.subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
    made = made.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC)).not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    return made.sign(issuer, SHA256()).public_bytes(Encoding.DER)


NODE = _certificate(NODE_KEY, "CCF Node", SERVICE_KEY)
PARAMETERS = {
    "serviceId": SERVICE_ID,
    "treeAlgorithm": "CCF",
    "signatureAlgorithm": "ES256",
    "serviceCertificate": base64.b64encode(_certificate(SERVICE_KEY, "CCF Service", SERVICE_KEY)).decode(),
}


def _head(major: int, size: int) -> bytes:
    """The head of a CBOR item (RFC 8949, section 3): here by hand, since the code under test has a library write it."""
    short, long = bytes([major << 5 | min(size, 24)]), bytes([major << 5 | 25])
    return short if size < 24 else short + bytes([size]) if size < 256 else long + size.to_bytes(2, "big")


def _countersigned(envelope: bytes, header: bytes) -> bytes:
    """What the ledger hashes of an envelope, item by item in its order."""
    protected, _, payload, signatures = cbor2.loads(envelope).value
    joined = b"".join(one[0] + one[2] for one in signatures)
    items = [_head(3, 18) + b"CounterSignatureV2"]
    items += [_head(2, len(one)) + one for one in (protected, header, b"", payload)]
    return _head(4, 6) + b"".join(items) + _head(4, 1) + _head(2, len(joined)) + joined


def _receipt(envelope: bytes, **changes: Any) -> list[Any]:  # noqa: ANN401 - whatever a forger writes
    """A receipt as the service writes it: the third leaf of a tree of five."""
    fields: dict[str, Any] = {
        "tree_alg": "CCF",
        "service_id": SERVICE_ID,
        "registration_time": REGISTERED,
        **changes.get("header", {}),
    }
    header = cbor2.dumps({name: value for name, value in fields.items() if value is not None})
    claims = sha256(_countersigned(envelope, header)).digest()
    root = sha256(INTERNAL[0] + sha256(INTERNAL[1]).digest() + claims).digest()
    proof: list[list[Any]] = [
        [side, sha256(bytes([place])).digest()] for place, side in enumerate((False, True, False))
    ]
    for left, other in proof:
        root = sha256(other + root if left else root + other).digest()
    key = changes.get("key", NODE_KEY)
    r, s = decode_dss_signature(key.sign(root, ec.ECDSA(Prehashed(SHA256()))))
    half = -(-key.curve.key_size // 8)
    return [header, [r.to_bytes(half, "big") + s.to_bytes(half, "big"), changes.get("node", NODE), proof, [*INTERNAL]]]


def _embedded(envelope: bytes, *receipts: object) -> bytes:
    parts = cbor2.loads(envelope).value
    return cbor2.dumps(cbor2.CBORTag(98, [parts[0], {394: [*receipts]}, *parts[2:]]))


def _check(envelope: bytes, documents: list[Any], receipt: object = None) -> Checked:
    pinned = read_service(json.dumps(PARAMETERS).encode(), "--contract-service")
    given = None if receipt is None else cbor2.dumps(receipt)
    return check(
        envelope,
        json.dumps(PIPELINE).encode(),
        Terms(CHECKED_AT),
        [json.dumps(one).encode() for one in documents],
        Registration(pinned, given),
    )


def _made(name: str) -> tuple[bytes, list[Any]]:
    return base64.b64decode(MADE[name]["envelope"]), MADE[name]["did_documents"]


@pytest.mark.parametrize("name", list(MADE))
def test_a_receipt_proves_that_the_service_registered_the_envelope(name: str) -> None:
    """In a file of its own or in the envelope, for each label set; the answer names service and time."""
    envelope, documents = _made(name)
    for found in (
        _check(envelope, documents, _receipt(envelope)),
        _check(_embedded(envelope, _receipt(envelope)), documents),
    ):
        assert refusals(found) == []
        assert found.to_json()["receipt"] == {"registered": "2026-05-31T23:00:00Z", "service_id": SERVICE_ID}


def _without_its_last_signature(envelope: bytes) -> bytes:
    parts = cbor2.loads(envelope).value
    return cbor2.dumps(cbor2.CBORTag(98, [*parts[:3], parts[3][:-1]]))


def _replaced(receipt: list[Any], place: tuple[int, ...], *, value: object) -> list[Any]:
    changed: list[Any] = cbor2.loads(cbor2.dumps(receipt))
    inner = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return changed


FORGED: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "a tree of another kind": ("receipt_invalid", lambda e: _receipt(e, header={"tree_alg": "RFC9162"})),
    "another service": ("receipt_service_differs", lambda e: _receipt(e, header={"service_id": "6a"})),
    "no service": ("receipt_invalid", lambda e: _receipt(e, header={"service_id": None})),
    "from tomorrow": ("receipt_time", lambda e: _receipt(e, header={"registration_time": CHECKED_AT // 1_000 + 1})),
    "a time that is text": ("receipt_invalid", lambda e: _receipt(e, header={"registration_time": "now"})),
    "another node's key": ("receipt_invalid", lambda e: _receipt(e, key=OTHER_KEY)),
    "a node that the service did not certify": (
        "receipt_invalid",
        lambda e: _receipt(e, key=OTHER_KEY, node=_certificate(OTHER_KEY, "CCF Node", OTHER_KEY)),
    ),
    "a certificate that is none": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 1), value=b"node")),
    "of fewer signatures": ("receipt_invalid", lambda e: _receipt(_without_its_last_signature(e))),
    "another header": (
        "receipt_invalid",
        lambda e: _replaced(_receipt(e), (0,), value=_receipt(e, header={"registration_time": 1})[0]),
    ),
    "a side that is turned": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 2, 0, 0), value=True)),
    "a side that is no boolean": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 2, 0, 0), value=1)),
    "a hash of 31 bytes": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 2, 0, 1), value=b"0" * 31)),
    "too long a proof": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 2), value=[[True, b"0" * 32]] * 65)),
    "other internal data": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 3, 1), value=b"ce:2.38:")),
    "a short signature": ("receipt_invalid", lambda e: _replaced(_receipt(e), (1, 0), value=b"0" * 95)),
    "no contents": ("receipt_invalid", lambda e: _receipt(e)[:1]),
    "no list": ("receipt_invalid", lambda _: "receipt"),
}


@pytest.mark.parametrize("name", list(FORGED))
def test_a_forged_receipt_is_refused_by_name(name: str) -> None:
    """In its file and in the envelope alike; nothing is imported."""
    code, forge = FORGED[name]
    envelope, documents = _made(next(iter(MADE)))
    for found in (
        _check(envelope, documents, forge(envelope)),
        _check(_embedded(envelope, forge(envelope)), documents),
    ):
        assert [one for one, _ in refusals(found)] == [code]
        assert (found.code, found.contract) == (Code.SIGNATURE_INVALID, None)


def test_a_pinned_service_s_receipt_must_be_there_once() -> None:
    """None, and two, are refused alike; so is the contract without its envelope."""
    envelope, documents = _made(next(iter(MADE)))
    for other in (envelope, _embedded(envelope), _embedded(envelope, *[_receipt(envelope)] * 2)):
        assert [one for one, _ in refusals(_check(other, documents))] == ["receipt_missing"]
    bare = cbor2.loads(envelope).value[2]
    assert [one for one, _ in refusals(_check(bare, documents, _receipt(envelope)))] == ["signatures_absent"]


@pytest.mark.parametrize(
    ("member", "value", "rule"),
    [
        ("treeAlgorithm", "RFC9162", "must be 'CCF'"),
        ("signatureAlgorithm", None, "must be 'ES256'"),
        ("serviceCertificate", "not base64", "must be a certificate: DER in base64"),
        ("serviceCertificate", base64.b64encode(b"DER").decode(), "must be a certificate: DER in base64"),
        ("serviceId", "", "must have 1 to 1000 characters"),
    ],
)
def test_parameters_that_pin_nothing_are_malformed(member: str, value: object, rule: str) -> None:
    """Each by its member."""
    with pytest.raises(Malformed) as raised:
        read_service(json.dumps({**PARAMETERS, member: value}).encode(), "--contract-service")
    assert (raised.value.field, raised.value.rule) == (f"--contract-service.{member}", rule)


def _run(folder: Path, *options: str) -> Result:
    at = ["--at", "2026-06-01T00:00:00Z"]
    return CliRunner().invoke(
        app, ["depa", "check", str(folder / "contract.cose"), str(folder / "pipeline.json"), *at, *options]
    )


def test_the_command_pins_a_service(tmp_path: Path) -> None:
    """The receipt's service and time are told; a receipt alone, without a pinned service, is an error."""
    envelope, documents = _made(next(iter(MADE)))
    (tmp_path / "contract.cose").write_bytes(envelope)
    (tmp_path / "pipeline.json").write_text(json.dumps(PIPELINE), encoding="utf-8")
    (tmp_path / "service.json").write_text(json.dumps(PARAMETERS), encoding="utf-8")
    (tmp_path / "receipt.cbor").write_bytes(cbor2.dumps(_receipt(envelope)))
    dids = []
    for place, one in enumerate(documents):
        (tmp_path / f"{place}.json").write_text(json.dumps(one), encoding="utf-8")
        dids += ["--did", str(tmp_path / f"{place}.json")]
    pinned, receipt = (
        ["--contract-service", str(tmp_path / "service.json")],
        ["--receipt", str(tmp_path / "receipt.cbor")],
    )
    done = _run(tmp_path, *dids, *pinned, *receipt)
    assert done.exit_code == 0, done.output
    assert f"registered 2026-05-31T23:00:00Z by the contract service {SERVICE_ID}\n" in done.output
    missing = _run(tmp_path, *dids, *pinned)
    assert missing.exit_code == Code.SIGNATURE_INVALID.exit_code
    assert "receipt_missing" in missing.output
    alone = _run(tmp_path, *dids, *receipt)
    assert alone.exit_code == Code.MALFORMED.exit_code
    assert "--receipt: needs --contract-service" in alone.output
