"""Canonical bytes: RFC 8785's own examples, strict reading, thumbprints, and hostile bytes."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import write

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), TEXT)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=12,
)
EDGES = st.text("aé\ud7ff\ue000\uffff\U00010000\U0010ffff", max_size=3)
"""Characters between which the order by code points and that by UTF-16 units differ."""
LOW_TEXT = st.text(st.characters(min_codepoint=1, max_codepoint=0xD7FF), max_size=6)


@settings(deadline=None)
@given(VALUES)
def test_what_is_dumped_reads_back(value: Any) -> None:  # noqa: ANN401 - any JSON
    """Reading is the inverse of writing."""
    assert c.parse_canonical(c.dump(value), 100_000) == value


@settings(deadline=None)
@given(st.dictionaries(LOW_TEXT, st.one_of(st.integers(-(2**53) + 1, 2**53 - 1), LOW_TEXT), max_size=6))
def test_bytes_agree_with_another_writer(value: dict[str, Any]) -> None:
    """Where code points sort as UTF-16 units do, the standard library's sorted JSON is the same bytes."""
    other = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert c.dump(value) == other.encode()


@settings(deadline=None)
@given(VALUES)
def test_the_quick_writer_and_the_library_agree(value: Any) -> None:  # noqa: ANN401 - any JSON
    """Whatever the characters of names and texts are."""
    assert c.dump(value) == rfc8785.dumps(value)


@settings(deadline=None)
@given(st.dictionaries(EDGES, st.one_of(EDGES, st.dictionaries(EDGES, st.none(), max_size=3)), max_size=5))
def test_either_writer_sorts_names_by_utf_16_units(value: dict[str, Any]) -> None:
    """The records' writer too, which is quick for whatever has no character beyond U+FFFF."""
    expected = rfc8785.dumps(value)
    assert c.dump(value) == expected
    assert write(value) == expected


@given(st.one_of(st.binary(max_size=40), st.text('{}[]":,\\u0d8eE+-.1 \ntrufalsn', max_size=30).map(str.encode)))
def test_bytes_that_are_read_have_one_spelling(data: bytes) -> None:
    """Hostile bytes are refused by name, or are exactly the canonical form of what they say."""
    try:
        value = c.parse_canonical(data, 1000, "command")
    except Malformed:
        return
    assert c.dump(value) == data


def test_rfc_8785_sorts_names_by_utf_16_units() -> None:
    """RFC 8785, section 3.2.3: the published example's order."""
    names = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }
    expected = (
        '{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin Small Letter O With Diaeresis",'
        '"€":"Euro Sign","😀":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}'
    )
    assert c.dump(dict(names)) == expected.encode()


def test_rfc_8785_spells_strings_and_literals() -> None:
    """RFC 8785, section 3.2.2: the published string and literals."""
    value: c.Json = {
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert c.dump(value) == '{"literals":[null,true,false],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'.encode()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "float": (b'{"a":1.0}', "floating-point"),
    "exponent": (b'{"a":1e-5}', "floating-point"),
    "huge exponent": (b'{"a":1e400}', "floating-point"),
    "NaN": (b'{"a":NaN}', "floating-point"),
    "Infinity": (b'{"a":-Infinity}', "floating-point"),
    "integer beyond 2^53 - 1": (b'{"a":9007199254740992}', "beyond the integers"),
    "integer below": (b'{"a":-9007199254740992}', "beyond the integers"),
    "integer of 5,000 digits": (b'{"a":' + b"9" * 5000 + b"}", "beyond the integers"),
    "name twice": (b'{"a":1,"a":1}', "given twice"),
    "name twice, spelled otherwise": (b'{"a":1,"\\u0061":1}', "given twice"),
    "lone surrogate": (b'{"a":"\\ud800"}', "lone surrogate"),
    "lone surrogate in a name": (b'{"\\udfff":1}', "lone surrogate"),
    "NUL": (b'{"a":"b\\u0000c"}', "U+0000"),
    "NUL in a name": (b'{"a\\u0000":1}', "U+0000"),
    "surrogate as bytes": (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
    "Latin-1": (b'{"a":"\xf6"}', "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf{}", "not JSON"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    "depth 17": (b"[" * 17 + b"]" * 17, "deeper than 16"),
    "depth 1000": (b"[" * 1000 + b"]" * 1000, "deeper than 16"),
    "depth 15000": (b'{"a":' * 15_000 + b"1" + b"}" * 15_000, "deeper than 16"),
    "empty": (b"", "not JSON"),
    "trailing": (b"{}x", "not JSON"),
    "comma": (b'{"a":1,}', "not JSON"),
    "leading zero": (b'{"a":01}', "not JSON"),
    "control character": (b'{"a":"\n"}', "not JSON"),
    "space": (b'{"a": 1}', "not in RFC 8785 form: byte 5"),
    "newline": (b'{"a":1}\n', "not in RFC 8785 form: byte 7"),
    "order": (b'{"b":1,"a":1}', "not in RFC 8785 form: byte 2"),
    "escaped": (b'{"a":"\\u0041"}', "not in RFC 8785 form"),
    "escaped solidus": (b'{"a":"\\/"}', "not in RFC 8785 form"),
    "minus zero": (b'{"a":-0}', "not in RFC 8785 form"),
    "too long": (b'"' + b"a" * 200_000 + b'"', "more than the 100000"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bytes_are_refused_by_name(case: str) -> None:
    """Every rule of the format, broken on purpose."""
    data, rule = HOSTILE[case]
    with pytest.raises(Malformed, match=re.escape(rule)) as fault:
        c.parse_canonical(data, 100_000, "command")
    assert fault.value.field.startswith("command")
    str(fault.value).encode()


@pytest.mark.parametrize("data", [b'{"\\ud800":1,"\\ud800":1}', b'{"a":{"\\ud800":[1.5]}}'])
def test_a_fault_can_always_be_written_down(data: bytes) -> None:
    """Even where the input holds a lone surrogate, the fault's own text is encodable."""
    with pytest.raises(Malformed) as fault:
        c.parse(data, 1000, "command")
    assert str(fault.value).encode()


def test_depth_16_is_allowed() -> None:
    """The bound is a bound, not one less."""
    assert c.parse_canonical(b"[" * 16 + b"]" * 16, 100)


@given(st.binary(max_size=80))
def test_base64url_reads_back(raw: bytes) -> None:
    """Every byte string has one spelling."""
    assert c.unbase64url(c.base64url(raw), "f") == raw


@pytest.mark.parametrize(
    "text", ["AB==", "AB=", "A", "AB CD", "AB\n", "AB+D", "AB/D", "AR", "!AAA", "é", 7, None, "A" * 10_001]
)
def test_base64url_has_no_second_spelling(text: object) -> None:
    """Padding, stray characters, another alphabet and loose last bits are refused."""
    with pytest.raises(Malformed, match="f: "):
        c.unbase64url(text, "f")


READERS: list[tuple[Callable[[], object], str]] = [
    (lambda: c.integer(value=True, field="f", least=0, most=1), "integer"),
    (lambda: c.integer(1.0, "f", 0, 1), "integer"),
    (lambda: c.integer("1", "f", 0, 1), "integer"),
    (lambda: c.integer(2, "f", 0, 1), "between"),
    (lambda: c.integer(-1, "f", 0, 1), "between"),
    (lambda: c.boolean(1, "f"), "true or false"),
    (lambda: c.string("", "f"), "1 to"),
    (lambda: c.string("aa", "f", 1), "1 to"),
    (lambda: c.string(1, "f"), "string"),
    (lambda: c.strings(["a", "a"], "f", 3), "twice"),
    (lambda: c.strings([], "f", 3), "1 to 3"),
    (lambda: c.strings(["a"] * 4, "f", 3), "1 to 3"),
    (lambda: c.strings("abc", "f", 3), "list"),
    (lambda: c.one_of("c", "f", ("a", "b")), "one of"),
    (lambda: c.one_of(["a"], "f", ("a", "b")), "one of"),
    (lambda: c.name("-a", "f"), "letter or digit first"),
    (lambda: c.name("a/b", "f"), "letters"),
    (lambda: c.name("a\n", "f"), "letters"),
    (lambda: c.name("a" * 129, "f"), "128"),
    (lambda: c.did("web:a", "f"), "DID"),
    (lambda: c.did("did:web:", "f"), "DID"),
    (lambda: c.did("did:web:a\n", "f"), "DID"),
    (lambda: c.did("did:Web:a", "f"), "DID"),
    (lambda: c.sha256("A" * 64, "f"), "SHA-256"),
    (lambda: c.sha256("a" * 63, "f"), "SHA-256"),
    (lambda: c.key_bytes(c.base64url(bytes(31)), "f"), "32 bytes"),
    (lambda: c.fields([], "f", ()), "object"),
    (lambda: c.fields({}, "f", ("a",)), "missing"),
    (lambda: c.fields({"a": 1, "b": 1}, "f", ("a",)), "not a known field"),
]


@pytest.mark.parametrize("place", range(len(READERS)))
def test_readers_refuse_by_field_and_rule(place: int) -> None:
    """No reader coerces, trims or passes over anything."""
    read, rule = READERS[place]
    with pytest.raises(Malformed, match=rule) as fault:
        read()
    assert fault.value.field.split(".")[0] == "f"


@settings(deadline=None)
@given(VALUES)
def test_the_quick_writer_and_the_published_one_agree(value: Any) -> None:  # noqa: ANN401 - any JSON
    """Where the quick way is sure of itself, its bytes are those of the RFC's own Python implementation."""
    assert c.dump(value) == rfc8785.dumps(value)


@given(st.text('{}[]":,\\u0d8eE+-.1 \ntrufalsn', max_size=30), st.sampled_from(["", "[", '{"a":']))
def test_the_quick_reader_refuses_what_the_strict_one_does(text: str, opening: str) -> None:
    """Each strict rule is asked of bytes that the quick way let through; none is broken."""
    data = (opening + text + {"[": "]", '{"a":': "}"}.get(opening, "")).encode()
    try:
        value = c.parse_canonical(data, 1000)
    except Malformed:
        return
    assert c.parse(data, 1000) == value
    assert rfc8785.dumps(value) == data


@pytest.mark.parametrize("text", ['{"a":1.0}', "[1e5]", "[1.5]", "[9007199254740992]", '{"a":1,"a":1}', "[-0]", "[ 1]"])
def test_what_no_canonical_form_holds_is_refused(text: str) -> None:
    """Floats, integers beyond 2^53, a name twice, a minus zero and a space, each in bytes that are plain otherwise."""
    with pytest.raises(Malformed):
        c.parse_canonical(text.encode(), 1000)


@pytest.mark.parametrize(("levels", "leaf", "read"), [(15, "1", True), (16, "1", False), (15, "[]", True)])
def test_depth_counts_what_is_inside_too(levels: int, leaf: str, read: bool) -> None:  # noqa: FBT001 - the status column
    """Sixteen levels, the innermost value's own included, and no more."""
    data = ("[" * levels + leaf + "]" * levels).encode()
    if read:
        assert c.parse_canonical(data, 1000) == json.loads(data)
    else:
        with pytest.raises(Malformed, match="nested deeper"):
            c.parse_canonical(data, 1000)
