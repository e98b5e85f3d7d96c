"""JSON and YAML of one document say the same; every fault tells its line and column, after bounded work."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.gate import DOCUMENT_BYTES_MAX, POLICY_DOCUMENT_BYTES_MAX
from ledger.wire.canonical_json import dump
from ledger.wire.malformed import Malformed
from policy.documents import ContractDocument, DatasetDescription, Policy, document_text
from tests.factories.decision_scene import CONTRACT, DATASET, POLICY

READERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "policy": (Policy, POLICY),
    "dataset": (DatasetDescription, DATASET),
    "contract": (ContractDocument, CONTRACT),
}


def as_yaml(value: dict[str, Any]) -> bytes:
    """Block style, as people write it."""
    return yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode()


@pytest.mark.parametrize("kind", READERS)
def test_yaml_and_json_of_a_document_are_the_same_document(kind: str) -> None:
    """Whatever the spelling, the same values and the same canonical form."""
    reader, value = READERS[kind]
    spellings = (dump(value), json.dumps(value, indent=2).encode(), as_yaml(value))
    assert {document_text.canonical_form(one, DOCUMENT_BYTES_MAX) for one in spellings} == {dump(value)}
    assert len({reader.parse(one) for one in spellings}) == 1


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | WORDS


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of objects and lists."""
    inner = st.recursive(
        leaves, lambda one: st.lists(one, max_size=3) | st.dictionaries(WORDS, one, max_size=3), max_leaves=8
    )
    return st.dictionaries(WORDS, inner, max_size=4)


@settings(max_examples=150, deadline=None)
@given(nested(SCALARS), nested(WORDS))
def test_any_value_is_read_as_it_was_written(value: dict[str, Any], quoted: dict[str, Any]) -> None:
    """JSON always; YAML of a writer that quotes every string."""
    assert document_text.read_text(json.dumps(value).encode(), 10_000).value == value
    written = yaml.safe_dump(quoted, default_style='"', allow_unicode=False, default_flow_style=False)
    assert document_text.read_text(b"# a comment\n" + written.encode(), 10_000).value == quoted


def placed(data: str, reader: type[Policy] = Policy) -> tuple[str, str]:
    """The fault's field, and where it says it is."""
    with pytest.raises(Malformed) as caught:
        reader.parse(data.encode())
    rule = caught.value.rule
    return caught.value.field, rule[rule.rfind("(") :]


def test_an_unknown_key_tells_its_line_and_column() -> None:
    """In YAML and in JSON, at any depth."""
    lines = as_yaml(POLICY).decode().splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("budget:"))
    lines.insert(at + 1, "  epsilon_min: '1'")
    assert placed("\n".join(lines)) == ("budget.epsilon_min", f"(line {at + 2}, column 3)")
    pretty = json.dumps({**POLICY, "budget": {**POLICY["budget"], "epsilon_min": "1"}}, indent=4)
    row = next(place for place, line in enumerate(pretty.splitlines(), 1) if "epsilon_min" in line)
    assert placed(pretty) == ("budget.epsilon_min", f"(line {row}, column 9)")
    assert placed('{"kind":"policy","v":1,"x":2}') == ("x", "(line 1, column 24)")


def test_a_missing_or_wrong_field_tells_the_place_of_what_holds_it() -> None:
    """What is not there has no place of its own."""
    pretty = json.dumps({**POLICY, "lineage": {}}, indent=1)
    row = next(place for place, line in enumerate(pretty.splitlines(), 1) if '"lineage"' in line)
    assert placed(pretty) == ("lineage.epsilon_max", f"(line {row}, column 2)")
    lines = json.dumps({**POLICY, "rules": ["renyi", "pld"]}, indent=1).splitlines()
    row = next(place for place, line in enumerate(lines, 1) if '"pld"' in line)
    assert placed("\n".join(lines)) == ("rules[1]", f"(line {row}, column 3)")


@pytest.mark.parametrize(
    ("source", "field", "rule"),
    [
        ("a: &x 1\n", "a", "uses an anchor or alias: write the value out (line 1, column 4)"),
        ("a: 1\nb: *x\n", "b", "uses an anchor or alias: write the value out (line 2, column 4)"),
        ("a: !!str 1\n", "a", "has a YAML tag (line 1, column 4)"),
        ("a: !secret x\n", "a", "has a YAML tag (line 1, column 4)"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "b.c", "is given twice (line 4, column 3)"),
        ("a: 1\n---\na: 2\n", "", "must be one document (line 2, column 1)"),
        ("%YAML 1.2\n---\na: 1\n", "", "begins with a YAML directive (line 1, column 1)"),
        ("? [a, b]\n: 1\n", "", "has a name that is not a plain string (line 1, column 3)"),
        ("1: 1\n", "", "has a name that is not a plain string (line 1, column 1)"),
        ("&x a: 1\n", "", "has a name that is not a plain string (line 1, column 1)"),
        ("a: no\n", "a", "'no' means different things to different readers: write it in quotes (line 1, column 4)"),
        ("a: ~\n", "a", "'~' means different things to different readers: write it in quotes (line 1, column 4)"),
        ("a:\n", "a", "has no value (line 1, column 3)"),
        ("a: 1_000\n", "a", "'1_000' means different things to different readers"),
        ("a: 0x1F\n", "a", "'0x1F' means different things to different readers"),
        ("a: 12:30:45\n", "a", "'12:30:45' means different things to different readers"),
        ("a: 8.5\n", "a", "8.5 is a floating-point number: write numbers in quotes (line 1, column 4)"),
        ("a: .inf\n", "a", ".inf is a floating-point number: write numbers in quotes (line 1, column 4)"),
        ("a: 1e3\n", "a", "1e3 is a floating-point number: write numbers in quotes (line 1, column 4)"),
        ("a: 0o17\n", "a", "0o17 is a floating-point number: write numbers in quotes (line 1, column 4)"),
        ("a: 010\n", "a", "010 is a floating-point number: write numbers in quotes (line 1, column 4)"),
        ("a: 9007199254740992\n", "a", "9007199254740992 is beyond the integers JSON keeps exactly"),
        ("a: {b: 1\n", "", "is neither JSON nor YAML"),
        ("a:\tb: c", "", "is neither JSON nor YAML"),
        ("- " * 17 + "x", "[0]" * 16, "is nested deeper than 16 levels (line 1, column 33)"),
        ("[" * 17, "[0]" * 16, "is nested deeper than 16 levels (line 1, column 17)"),
        ('{"a": {"b": 1,\n "b": 2}}', "a.b", "is given twice (line 2, column 2)"),
        ('{"a": [1,\n 2.5]}', "a[1]", "2.5 is a floating-point number: write numbers as strings (line 2, col"),
        ('{"a": 12345678901234567}', "a", "12345678901234567 is beyond the integers JSON keeps exactly"),
    ],
)  # fmt: skip
def test_what_readers_could_take_differently_is_refused_at_its_place(source: str, field: str, rule: str) -> None:
    """Each thing that YAML has and JSON has not, and each that JSON readers disagree about."""
    with pytest.raises(Malformed) as caught:
        document_text.read_text(source.encode(), 10_000)
    assert caught.value.field == field
    assert caught.value.rule.startswith(rule)


def test_times_and_ratios_need_no_quotes() -> None:
    """What no reader would compute with is plainly a string."""
    source = b"effective: 2026-01-01T00:00:00Z\nshare: 1/3\nid: health-1\nflag: true\nnone: null\nn: -3\n"
    value = document_text.read_text(source, 1_000).value
    assert value == {
        "effective": "2026-01-01T00:00:00Z",
        "share": "1/3",
        "id": "health-1",
        "flag": True,
        "none": None,
        "n": -3,
    }


class Counting:
    """A YAML parser's events, counted as they are taken."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self.events, self.taken = events, 0

    def __iter__(self) -> "Counting":
        return self

    def __next__(self) -> yaml.Event:
        self.taken += 1
        return next(self.events)


@pytest.mark.parametrize(
    ("source", "most"),
    [
        (b"- " * 1_000, 24),
        (b"[" * 1_000, 24),
        (b"a: [" + b"1," * 60_000 + b"1]", document_text.NODES_MAX + 8),
        (b"a: {" + b"".join(b"b%d: 1," % n for n in range(50_000)) + b"}", 2 * document_text.NODES_MAX + 8),
        (b"a: &a [x]\nb: [" + b"*a," * 9_000 + b"*a]", 8),
    ],
)
def test_a_hostile_text_is_given_up_early(source: bytes, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth, number and copies of values end the reading where they pass the bound, not where the text ends."""
    seen: list[Counting] = []
    parse = yaml.parse

    def counted(source: str, Loader: type) -> Counting:  # noqa: N803 - the parser's own name
        seen.append(Counting(parse(source, Loader=Loader)))
        return seen[-1]

    monkeypatch.setattr(yaml, "parse", counted)
    with pytest.raises(Malformed):
        document_text.read_text(source, POLICY_DOCUMENT_BYTES_MAX)
    assert 0 < seen[0].taken <= most


@pytest.mark.parametrize("source", [b"x" * 2_097_153, b"{" * 2_097_153, b"[" * 2_097_153, b"- " * 1_048_577])
def test_two_megabytes_are_refused_unread(source: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long is too long before a parser sees it."""
    monkeypatch.setattr(document_text, "_yaml", None)
    monkeypatch.setattr(document_text, "_json", None)
    with pytest.raises(Malformed, match="more than the 2097152 allowed"):
        Policy.parse(source)


def test_depth_1000_is_refused_in_json_at_its_place() -> None:
    """Whatever Python's own reader makes of it, the fault is named."""
    source = '{"a":' * 1_000 + "1" + "}" * 1_000
    with pytest.raises(Malformed, match="nested deeper than 16 levels"):
        document_text.read_text(source.encode(), DOCUMENT_BYTES_MAX)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="{}[]:,-?!&*#|>'\"%@` \n\tab01.~", max_size=60).map(str.encode))
def test_any_bytes_are_a_value_or_malformed(source: bytes) -> None:
    """Nothing but a value of JSON or an error by name comes out."""
    try:
        value = document_text.read_text(source, 1_000).value
    except Malformed:
        return
    assert document_text.read_text(dump(value), 1_000).value == value
