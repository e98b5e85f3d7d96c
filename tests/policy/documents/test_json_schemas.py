"""The published schema of each document says what its reader does, wherever a schema can."""

import contextlib
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ledger.wire.canonical_json import dump
from ledger.wire.malformed import Malformed
from policy.documents import ContractDocument, DatasetDescription, Policy, Recommendation, StreamDocument
from policy.documents.json_schemas import KINDS, schema_of
from tests.policy.documents.complete import FULL

# What the ledger keeps: any text without a NUL.
KEPT = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
WORDS = st.text(KEPT, max_size=8)
READERS: dict[str, Callable[[bytes], object]] = {
    "contract": ContractDocument.parse,
    "dataset": DatasetDescription.parse,
    "policy": Policy.parse,
    "recommendation": Recommendation.parse,
    "stream": StreamDocument.parse,
}
VALIDATORS = {kind: Draft202012Validator(schema_of(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_file_is_the_readers_own_schema(kind: str) -> None:
    """Byte for byte; policy/README.md says how it is written anew."""
    published = (files("policy.documents") / "schemas" / f"{kind}.json").read_text("utf-8")
    assert published == json.dumps(schema_of(kind), indent=2, sort_keys=True) + "\n"
    Draft202012Validator.check_schema(json.loads(published))


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_with_every_field_is_read_and_valid(kind: str) -> None:
    """The full documents of these tests leave no field of the form out."""
    assert set(FULL[kind]) == {*schema_of(kind)["properties"]}
    assert READERS[kind](dump(FULL[kind]))
    assert VALIDATORS[kind].is_valid(FULL[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_each_field_is_missed_or_may_be_missing_alike(kind: str) -> None:
    """Required is required in both; an unknown field is refused by both."""
    required = schema_of(kind)["required"]
    for name in FULL[kind]:
        rest = {other: value for other, value in FULL[kind].items() if other != name}
        assert VALIDATORS[kind].is_valid(rest) is (name not in required)
        if name in required:
            with pytest.raises(Malformed) as caught:
                READERS[kind](dump(rest))
            assert caught.value.field == name
    with pytest.raises(Malformed, match="is not a known field"):
        READERS[kind](dump({**FULL[kind], "extra": 1}))
    assert not VALIDATORS[kind].is_valid({**FULL[kind], "extra": 1})


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one a type
    """Values that a schema of ours describes, now and then just outside of it."""
    if "anyOf" in schema:
        return st.one_of([values(one) for one in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            low, high = schema["minimum"], schema["maximum"]
            return st.integers(low, high) | st.sampled_from([low - 1, low, high, high + 1])
        case "boolean":
            return st.booleans()
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"]).map(lambda text: text.rstrip("\n")) | st.sampled_from(
                ["1", "0.5", "1/2"]
            )
        case "string":
            return st.text(KEPT, min_size=1, max_size=min(schema["maxLength"], 30))
        case "array":
            return st.lists(values(schema.get("items", {})), min_size=schema["minItems"], max_size=3)
        case "object" if "properties" in schema:
            fields = {name: values(inner) for name, inner in schema["properties"].items()}
            required = schema["required"]
            optional = {name: one for name, one in fields.items() if name not in required}
            return st.fixed_dictionaries({name: fields[name] for name in required}, optional=optional)
        case _:
            return st.dictionaries(WORDS, st.integers() | WORDS | st.booleans(), max_size=3)


DESCRIBED = {kind: values(schema_of(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_the_schema_describes_is_a_document_or_malformed(kind: str, data: st.DataObject) -> None:
    """Every field of every document at once; and what is read is valid."""
    value = data.draw(DESCRIBED[kind])
    with contextlib.suppress(Malformed):
        assert READERS[kind](json.dumps(value).encode())
        assert VALIDATORS[kind].is_valid(value)


def fault_of(kind: str, value: dict[str, Any]) -> Malformed | None:
    """What its reader finds wrong with a document."""
    try:
        READERS[kind](json.dumps(value).encode())
    except Malformed as fault:
        return fault
    return None


FIELDS = {kind: {name: values(one) for name, one in schema_of(kind)["properties"].items()} for kind in KINDS}
JUNK = st.none() | st.booleans() | st.integers(-2, 2**53 - 1) | st.text(max_size=9) | st.lists(st.text(), max_size=2)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_each_field_alone_takes_what_its_schema_describes_or_is_named(kind: str, data: st.DataObject) -> None:
    """In a document that is otherwise good, a fault names the field that was changed, or one it contradicts."""
    name = data.draw(st.sampled_from(sorted(FIELDS[kind])))
    changed = {**FULL[kind], name: data.draw(FIELDS[kind][name] | JUNK)}
    fault = fault_of(kind, changed)
    assert VALIDATORS[kind].is_valid(changed) if fault is None else fault.field and "(line 1, col" in fault.rule
