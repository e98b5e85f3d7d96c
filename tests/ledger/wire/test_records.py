"""A declared record: its strict reader, its canonical writer and its JSON Schema agree."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Meta

from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Name, Positive, Ref, Time, between, constant, distinct, exact, text
from ledger.wire.json_schema import json_schema
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert, read, write

REF: Final = "did:web:a/b/c"


class Inner(Record, frozen=True):
    """A record inside another."""

    k: Annotated[int, between(0, 10)]
    p: Positive


class Noisy(Record, frozen=True, tag_field="kind", tag="noisy"):
    """One of two tagged records."""

    noise: Annotated[Fraction, exact(Fraction(1, 100), Fraction(10))]
    v: Literal[1] = constant(1)


class Repeated(Record, frozen=True, tag_field="kind", tag="repeated"):
    """One that holds another."""

    inner: Noisy
    v: Literal[1] = constant(1)


class Sample(Record, frozen=True):
    """Every kind of field."""

    actor: Did
    ref: Ref
    names: Annotated[tuple[Name, ...], distinct(3)] = ()
    reason: Annotated[str, text(20)] | None = None
    inner: Inner | None = None
    mechanism: Annotated[Noisy | Repeated, Meta(extra={"rule": "is not a mechanism"})] | None = None
    role: Literal["a", "b"] = "a"
    prices: dict[Ref, tuple[Time | None, ...]] = {}  # noqa: RUF012 - msgspec copies it
    flag: bool | None = None
    v: Literal[1] = constant(1)


GOOD: Final[dict[str, Any]] = {
    "actor": "did:web:a",
    "ref": REF,
    "names": ["x", "y"],
    "reason": "why",
    "inner": {"k": 1, "p": "1/3"},
    "mechanism": {"inner": {"kind": "noisy", "noise": "1", "v": 1}, "kind": "repeated", "v": 1},
    "role": "b",
    "prices": {REF: [1, None]},
    "flag": False,
    "v": 1,
}
NOISY: Final = {"kind": "noisy", "noise": "1", "v": 1}


def _said(value: object) -> tuple[str, str]:
    with pytest.raises(Malformed) as refused:
        read(Sample, c.dump(value), 2_000)  # type: ignore[arg-type] # whatever is tried
    return refused.value.field, refused.value.rule


@pytest.mark.parametrize("reason", ["why", "för älles 𝄞"])
def test_reads_back_what_it_writes(reason: str) -> None:
    """Byte for byte, whatever characters it holds."""
    data = c.dump({**GOOD, "reason": reason})
    assert write(read(Sample, data, 2_000)) == data


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"v": 2}, "v", "must be 1"),
        ({"v": None}, "v", "must be an integer, not NoneType"),
        ({"actor": "x"}, "actor", "must be a DID of at most 255 characters, as 'did:web:bank-a.example'"),
        ({"zzz": 1}, "zzz", "is not a known field"),
        ({"names": []}, "names", "must have 1 to 3 items"),
        ({"names": ["x", "x"]}, "names", "names an item twice"),
        ({"names": None}, "names", "must be a list"),
        ({"names": ["x", "a b"]}, "names[1]", None),
        ({"reason": None}, "reason", "must be a string, not NoneType"),
        ({"reason": ""}, "reason", "must have 1 to 20 characters"),
        ({"reason": "\0"}, "reason", "holds the character U+0000"),
        ({"inner": {"k": 11, "p": "1"}}, "inner.k", "must lie between 0 and 10"),
        ({"inner": {"k": True, "p": "1"}}, "inner.k", "must be an integer, not bool"),
        ({"inner": {"k": 1, "p": "0"}}, "inner.p", "must be greater than 0"),
        ({"inner": {"k": 1, "p": "2/4"}}, "inner.p", "write '2/4' as '0.5'"),
        ({"inner": {"p": "1"}}, "inner.k", "is missing"),
        ({"inner": None}, "inner", "must be an object"),
        ({"mechanism": {"kind": "other"}}, "mechanism.kind", "'other' is not a mechanism"),
        ({"mechanism": {**NOISY, "noise": "100"}}, "mechanism.noise", "must lie between 0.01 and 10"),
        ({"role": "c"}, "role", "must be one of a, b"),
        ({"ref": f"{REF}\n"}, "ref", "must be 'provider/dataset/partition'"),
        ({"prices": {"x": [1]}}, "prices.x", "must be 'provider/dataset/partition'"),
        ({"prices": {REF: ["1"]}}, f"prices.{REF}[0]", "must be an integer, not str"),
        ({"flag": 0}, "flag", "must be true or false, not int"),
    ],
)
def test_names_the_field_and_its_rule(change: dict[str, Any], field: str, rule: str | None) -> None:
    """The path of the field that is wrong, and the sentence that its type declares."""
    found = _said({**GOOD, **change})
    assert found == (field, rule if rule is not None else found[1])


def test_a_constant_must_be_there() -> None:
    """Though a program that makes the record need not give it."""
    assert _said({name: one for name, one in GOOD.items() if name != "v"}) == ("v", "is missing")


@pytest.mark.parametrize(
    "data",
    [
        b'{"v":1,"ref":"did:web:a/b/c","actor":"did:web:a"}',
        b'{"actor":"did:web:a","actor":"did:web:a","ref":"did:web:a/b/c","v":1}',
        b'{"actor":"did:web:a","ref":"did:web:a\\/b/c","v":1}',
        b'{"actor":"did:web:a","ref":"did:web:a/b/c","v":1.0}',
        b'{"actor":"did:web:a","names":[],"ref":"did:web:a/b/c","v":1}',
        b'{"actor":"did:web:a","reason":null,"ref":"did:web:a/b/c","v":1}',
        b'{"actor":"did:web:a","ref":"did:web:a/b/c","role":"a","v":1}',
    ],
)
def test_refuses_other_bytes_of_the_same(data: bytes) -> None:
    """Members out of order or repeated, other spellings, and defaults that are written out."""
    with pytest.raises(Malformed):
        read(Sample, data, 2_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["x", "1", "0", "noisy", "did:web:a", REF, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "p", "kind", "v", REF]), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(GOOD)), JSON, st.booleans())
def test_the_schema_admits_what_the_reader_admits(name: str, value: object, gone: bool) -> None:  # noqa: FBT001
    """Whatever is put in the place of a field, or a field taken away."""
    changed = {**GOOD, name: value}
    if gone:
        del changed[name]
    try:
        assert write(convert(Sample, changed)) == c.dump(changed)
    except Malformed:
        return
    schema = json.loads(json.dumps(json_schema(Sample)))
    Draft202012Validator(schema).validate(changed)
