"""Whatever bytes a document has, the gate permits, denies with reasons it lists, or its reader names the fault."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.domain.gate import Verdict
from ledger.wire.canonical_json import dump
from ledger.wire.malformed import Malformed
from policy.decisions.gate import gate
from policy.documents import ContractDocument, DatasetDescription, Policy, Recommendation, StreamDocument
from policy.documents.partition_commitments import MAGIC
from tests.factories.decision_facts import build
from tests.factories.decision_scene import ASKED, DECIDED_AT, SCENE, STREAM
from tests.factories.path_changes import GONE, changed
from tests.factories.people import SRO
from tests.policy.decisions.test_cases import codes_listed
from tests.policy.documents.complete import FULL
from tests.policy.documents.test_json_schemas import values

KINDS = ("policy", "recommendation", "dataset", "stream", "contract")
READERS: dict[str, Callable[[bytes], object]] = {
    "contract": ContractDocument.parse,
    "dataset": DatasetDescription.parse,
    "policy": Policy.parse,
    "recommendation": Recommendation.parse,
    "stream": StreamDocument.parse,
}
ENTERED: dict[str, dict[str, Any]] = {
    "policy": {**FULL["policy"], "version": 2, "effective": DECIDED_AT},
    "recommendation": FULL["recommendation"],
    "stream": STREAM,
    "dataset": {**FULL["dataset"], "id": "letters"},
    "contract": {**FULL["contract"], "id": "new"},
}


def entered(kind: str, data: bytes) -> Verdict:
    """What the gate makes of a document of these bytes, entered by the right people."""
    scene = changed({**SCENE, **ASKED[kind]}, {"entered": GONE})
    scene["signers"] = [*scene["signers"], SRO]  # of a contract's waivers
    scene["body"] = {"document": "0" * 64, "signatures": ["0" * 64]}
    request, facts = build(kind, scene)
    facts.documents = {**facts.documents, "0" * 64: data}
    return gate(request, facts)


def spelled(kind: str, *, as_yaml: bool) -> bytes:
    """The document as JSON or as YAML."""
    return yaml.safe_dump(ENTERED[kind], sort_keys=False).encode() if as_yaml else dump(ENTERED[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_document_is_permitted_in_either_spelling(kind: str) -> None:
    """Every field of it at once."""
    assert all(entered(kind, spelled(kind, as_yaml=as_yaml)).permit for as_yaml in (False, True))


@settings(max_examples=125, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS), st.booleans(), st.data())
def test_damaged_bytes_are_permitted_or_denied_for_a_listed_reason(
    kind: str,
    as_yaml: bool,  # noqa: FBT001 - drawn
    data: st.DataObject,
) -> None:
    """A slice replaced by any bytes: no error of the program, no denial without a check, no code nobody knows."""
    text = spelled(kind, as_yaml=as_yaml)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    damaged = (
        text[:start]
        + data.draw(st.binary(max_size=8) | st.sampled_from([b"\n", b"- ", b"&a ", b"{", b"'"]))
        + text[end:]
    )
    verdict = entered(kind, damaged)
    failed = {check.code for check in verdict.checks if not check.passed}
    assert verdict.permit is not bool(failed)
    assert failed <= codes_listed() - {"evaluation_error"}
    assert all(dump(check.to_json()) for check in verdict.checks)
    with contextlib.suppress(Malformed):
        READERS[kind](damaged)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_a_schema_describes_is_permitted_or_denied_for_a_listed_reason(data: st.DataObject) -> None:
    """Every field of every kind, valid or just outside, in a document that is otherwise good."""
    from policy.documents.json_schemas import schema_of

    kind = data.draw(st.sampled_from(KINDS))
    described = schema_of(kind)["properties"]
    name = data.draw(st.sampled_from(sorted(described)))
    verdict = entered(kind, yaml.safe_dump({**ENTERED[kind], name: data.draw(values(described[name]))}).encode())
    failed = {check.code for check in verdict.checks if not check.passed}
    assert verdict.permit is not bool(failed)
    assert failed <= codes_listed() - {"evaluation_error"}


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: MAGIC + tail))
def test_any_commitments_are_read_or_named(data: bytes) -> None:
    """Bytes of whatever length and order: a partition opens with them, or the fault is told."""
    change = {"policies|0|records_min": 1, "body|records": 1}
    scene = changed({**SCENE, "signers": [], **ASKED["partition"]}, change)
    request, facts = build("partition", {**scene, "body": {**scene["body"], "commitments": ["0" * 64]}})
    facts.documents = {**facts.documents, "0" * 64: data}
    verdict = gate(request, facts)
    failed = {check.code for check in verdict.checks if not check.passed}
    assert failed <= {"commitments_malformed"}
    assert verdict.permit is not bool(failed)
