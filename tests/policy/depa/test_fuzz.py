"""Whatever stands in a file: an import, refusals by name, or Malformed; after bounded work; nothing else."""

import contextlib
import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.outcomes import Code
from ledger.wire.malformed import Malformed
from policy.depa.contract.cose_sign import is_envelope, read_envelope
from policy.depa.contract.decimal_json import BYTES_MAX, DEPTH_MAX, parse
from policy.depa.contract.field_reader import Fields
from policy.depa.contract.reasons import CODES, PHASES, Reasons
from policy.depa.evaluation import Terms
from policy.depa.import_check import Checked, check
from policy.documents import ContractDocument
from tests.factories.depa_documents import CHECKED_AT, CONTRACT, PIPELINE, TESTS, VISITS
from tests.factories.people import BANK_A
from tests.policy.depa.contract.test_cose_sign import ALL, HEADER, KEYS, SIGNATURE, _signed

TEXTS = {"contract": json.dumps(CONTRACT).encode(), "pipeline": json.dumps(PIPELINE).encode()}
WORDS = st.sampled_from(
    [
        *(
            "null",
            "1.5",
            "0",
            "-1",
            "1e9",
            "NaN",
            " 7 ",
            "1_000",
            "",
            "true",
            BANK_A,
            VISITS,
            TESTS,
            "Train_DL",
            "Train",
        ),
        *(
            "SparkJoin",
            "DirectoryJoin",
            "name",
            "config",
            "privacy",
            "epsilon",
            "delta",
            "id",
            "data",
            "dataset",
            "key",
        ),
        *("\ud800", "\u001b[31m", "x" * 300),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | WORDS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))


def _unsound(found: Checked) -> list[object]:
    """What does not hold of a check: named reasons in order, of plain text; an import within every bound; JSON."""
    phases = [PHASES.index(reason.phase) for reason in found.reasons]
    wrong: list[object] = [] if phases == sorted(phases) else [phases]
    wrong += [
        reason
        for reason in found.reasons
        if reason.code not in CODES
        or not reason.field.startswith(("contract", "pipeline", "envelope"))
        or not (reason.field + reason.value).isprintable()
        or len(reason.value) >= 110
    ]
    refused = any(reason.refused for reason in found.reasons)
    if not (found.code is Code.PERMITTED) == (found.contract is not None) == (not refused):
        wrong.append(found.code)
    if found.contract is not None:
        ours = ContractDocument.parse(found.contract)
        if ours.run.epsilon_max > 128 or any(one.provider not in ours.tdps for one in ours.datasets):
            wrong.append(ours)
    json.dumps(found.to_json()).encode()
    return wrong


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, bytes]:
    """Both files, one of them with values replaced, taken away or joined by unknown ones, at any depth."""
    which = draw(st.sampled_from(sorted(TEXTS)))
    value: Any = json.loads(TEXTS[which])
    for _ in range(draw(st.integers(1, 3))):
        place = value
        while True:
            spots = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            spot = draw(st.sampled_from(spots))
            if not isinstance(place[spot], dict | list) or not place[spot] or draw(st.integers(0, 3)) == 0:
                break
            place = place[spot]
        act = draw(st.sampled_from(["replace", "remove", "join"]))
        if act == "replace":
            place[spot] = draw(VALUES)
        elif act == "remove" and len(place) > 1:
            del place[spot]
        elif isinstance(place, dict):
            place[draw(WORDS)] = draw(VALUES)
        else:
            place.append(draw(VALUES))
    return {**TEXTS, which: json.dumps(value).encode()}


@settings(max_examples=200, deadline=None)
@given(damaged(), st.integers(0, 2))
def test_damaged_fields_are_imported_or_refused_by_name(texts: dict[str, bytes], level: int) -> None:
    """Any value at any place."""
    with contextlib.suppress(Malformed):
        assert _unsound(check(texts["contract"], texts["pipeline"], Terms(CHECKED_AT, level=level))) == []


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_damaged_bytes_are_imported_or_refused_by_name(which: str, data: st.DataObject) -> None:
    """A slice of either file replaced by any bytes."""
    text = TEXTS[which]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    spoiled = {**TEXTS, which: text[:start] + data.draw(st.binary(max_size=8)) + text[end:]}
    with contextlib.suppress(Malformed):
        assert _unsound(check(spoiled["contract"], spoiled["pipeline"], Terms(CHECKED_AT))) == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_envelopes_are_never_imported(data: st.DataObject) -> None:
    """A slice of a signed envelope replaced by other bytes: no such envelope passes for signed."""
    text = _signed(KEYS, ALL, ALL)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    spoiled = text[:start] + data.draw(st.binary(max_size=8)) + text[end:]
    with contextlib.suppress(Malformed):
        found = check(spoiled, TEXTS["pipeline"], Terms(CHECKED_AT))
        assert _unsound(found) == []
        assert found.contract is None


CBOR = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.binary(max_size=9)
    | st.text(max_size=9)
    | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(0, 500) | st.text(max_size=3), inner, max_size=4)
        | st.builds(cbor2.CBORTag, st.integers(0, 300), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(CBOR, CBOR, CBOR, st.booleans())
def test_any_cbor_is_an_envelope_or_malformed(header: Any, loose: Any, own: Any, whole: bool) -> None:  # noqa: ANN401, FBT001 - CBOR
    """Well-formed CBOR of any shape where the headers stand, and in place of everything."""
    try:
        parts = [cbor2.dumps(header), loose, b"{}", [SIGNATURE, [cbor2.dumps(own), {}, b"s"]]]
        data = cbor2.dumps(cbor2.CBORTag(98, header if whole else [HEADER, *parts[1:]]))
    except cbor2.CBOREncodeError:
        return
    with contextlib.suppress(Malformed):
        assert read_envelope(data).payload == b"{}"


NUMBERS = st.from_regex(r"[ +-]?[0-9_]{0,4}[.,]?[0-9]{0,4}([eE][+-]?[0-9]{1,2})?[ \n]?", fullmatch=True) | st.text(
    max_size=6
)


def _plain(text: str) -> bool:
    """The same rule said another way: digits, at most one point between digits, no leading zero before a digit."""
    whole, point, rest = text.partition(".")
    digits = set("0123456789")
    if not whole or set(whole) - digits or set(rest) - digits or (point and not rest):
        return False
    return whole == "0" or not whole.startswith("0")


@settings(max_examples=300)
@given(NUMBERS)
def test_numbers_in_strings_have_one_spelling(text: str) -> None:
    """What is read is plain and has the value that decimal arithmetic gives it; what is plain is read."""
    reasons = Reasons()
    number = Fields({"n": text}, "contract", reasons).number("n", Fraction(0), Fraction(10**18))
    assert (number is not None) == _plain(text)
    if number is None:
        assert [reason.code for reason in reasons.found] in (["number_spelling"], ["number_null"])
        return
    try:
        assert number.numerator == Decimal(text) * number.denominator
    except InvalidOperation:
        pytest.fail("decimal arithmetic does not know it")


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**6), max_value=10**6),
    st.integers(-9, 9),
)
def test_json_numbers_keep_every_digit(number: Decimal, exponent: int) -> None:
    """Fractions and exponents are read exactly, where floats would round."""
    read = parse(f'{{"n": {number}e{exponent}}}'.encode(), "pipeline")["n"]
    assert read == Fraction(*number.scaleb(exponent).as_integer_ratio())


DEEP = [
    b"[" * 1_000 + b"]" * 1_000,
    b"[" * 100_000,
    b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
    b'{"a":' * (DEPTH_MAX + 1) + b"1" + b"}" * (DEPTH_MAX + 1),
    b"[" + b"1" * 1_000 + b"]",
    b"[1e999999999]",
    b"[1e19]",
    b"[0." + b"1" * 100 + b"]",
    b"[NaN]",
    b"[-Infinity]",
    b'{"a":1,"a":1}',
    b'"\\ud800"',
    b'{"\\ud800":1}',
    b"\xff",
    b"\xef\xbb\xbf{}",
    b"",
    b"{} {}",
    b" " * (BYTES_MAX + 1),
    b"[" * 1_048_576,
]


@pytest.mark.parametrize("data", DEEP)
@pytest.mark.parametrize("place", [0, 1])
def test_hostile_text_is_malformed(data: bytes, place: int) -> None:
    """Depth, length, digits, exponents, repeated names and stray bytes, in either file."""
    texts = [TEXTS["contract"], TEXTS["pipeline"]]
    texts[place] = data
    with pytest.raises(Malformed) as caught:
        check(texts[0], texts[1], Terms(CHECKED_AT))
    assert caught.value.field.startswith(("contract", "pipeline")[place])


MANY: list[Callable[[], bytes]] = [
    lambda: json.dumps({f"f{place}": "$" for place in range(15_000)}).encode(),
    lambda: json.dumps({"pipeline": [{"name": "x", "config": {}}] * 6_000}).encode(),
    lambda: json.dumps({"datasets": [{}] * 60_000}).encode(),
    lambda: json.dumps({"constraints": [{"privacy": [{}] * 64}] * 64}).encode(),
]


@pytest.mark.parametrize("make", MANY)
def test_a_large_file_gives_no_more_reasons_than_it_has_parts(make: Callable[[], bytes]) -> None:
    """Work and reasons grow with the bytes, never faster."""
    data = make()
    assert len(data) <= BYTES_MAX
    for texts in ((data, TEXTS["pipeline"]), (TEXTS["contract"], data)):
        found = check(*texts, Terms(CHECKED_AT))
        assert _unsound(found) == []
        assert len(found.reasons) <= len(data)


def test_the_largest_file_is_read() -> None:
    """And one byte more is not even decoded."""
    padded = TEXTS["contract"] + b" " * (BYTES_MAX - len(TEXTS["contract"]))
    assert check(padded, TEXTS["pipeline"], Terms(CHECKED_AT)).contract is not None
    with pytest.raises(Malformed, match="more than the 262144 allowed"):
        check(padded + b" ", TEXTS["pipeline"], Terms(CHECKED_AT))
    assert not is_envelope(padded)
