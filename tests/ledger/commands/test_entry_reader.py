"""What is read of the entry of a run by its declared record is what the strict reader reads, or refuses."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledger.audit.log_chunk import FAULTS, describe_error
from ledger.commands.apply import effect_of
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import Read, read_entry
from ledger.commands.runs.charge_entry import Charged
from ledger.commands.runs.settlement import Settled
from ledger.crypto.detached_jws import public_key
from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.wire import canonical_json as c
from ledger.wire.field_types import TIME_MAX
from tests.factories.documents import NOW, dense_plan
from tests.factories.memory import ref_of
from tests.factories.people import BANKS, private_key

KEY: Final = public_key(private_key("somebody")).thumbprint
SMALL: Final = c.base64url(bytes(32))
SIGNATURE: Final = "eyJhbGciOiJFZDI1NTE5In0..AAAA"
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}", fullmatch=True)
SIGNATURES = st.just(SIGNATURE) | st.text(min_size=1, max_size=40)
ROOMS = st.binary(min_size=32, max_size=32).map(c.base64url)


def _charge(signing: str, sealing: str, deadline: int = NOW, aside: c.Json = None, named: str = "aside") -> c.Object:
    request: dict[str, Any] = {
        "clean_room": {
            "sealing": {"crv": "X25519", "kty": "OKP", "x": sealing},
            "signing": {"crv": "Ed25519", "kty": "OKP", "x": signing},
        },
        "contract": "c" * 64,
        "deadline": deadline,
        "partitions": [ref_of("a")],
        "plan": dense_plan(40),
    }
    prices: c.Object = {ref_of("a"): [{"price": [7, None, 9, 0], "steps": 40, "unit": 1}]}
    body: c.Object = {
        "author": 2,
        "limits": [],
        "outcome": "pending",
        "plan": "d" * 64,
        "prices": prices,
        "request": request,
    }
    return {named: aside, **body} if aside else body


def _post(charge: str, steps: int) -> c.Object:
    return {"outcome": "posted", "request": {"charge": charge, "steps": steps}}


def _bytes(kind: str, body: c.Object, name: str = "run-1", time: int = NOW, signature: str = SIGNATURE) -> bytes:
    return Entry(kind, name, time, BANKS[0], KEY, body, signature).to_bytes()


ROOM: Final = public_key(private_key("signing")).x, public_key(private_key("sealing")).x
KNOWN: Final = (_bytes("charge", _charge(*ROOM)), _bytes("post", _post("run-1", 40)))


def _strictly(data: bytes) -> Read | str:
    try:
        entry = Entry.parse(data)
        return Read(entry.id, entry.kind, entry.time, effect_of(entry))
    except FAULTS as fault:
        return describe_error(fault)


def _quickly(data: bytes) -> Read | str:
    for known in KNOWN:
        read_entry(known)
    try:
        return read_entry(data)
    except FAULTS as fault:
        return describe_error(fault)


@given(ROOMS, ROOMS, IDS, st.integers(0, TIME_MAX), st.integers(0, TIME_MAX))
@example(SMALL, ROOM[1], "run-2", NOW, NOW)
@example(ROOM[0], SMALL, "run-2", NOW, NOW)
@example(ROOM[0][:42] + "B", ROOM[1], "run-2", NOW, NOW)
@example(*ROOM, "run-2", TIME_MAX + 1, NOW)
@example(*ROOM, "run-2", TIME_MAX, TIME_MAX + 1)
def test_a_charge_like_one_before(signing: str, sealing: str, name: str, deadline: int, time: int) -> None:
    """Whatever keys, times and name it has."""
    data = _bytes("charge", _charge(signing, sealing, deadline), name, time)
    assert _quickly(data) == _strictly(data)


@given(IDS, IDS, st.integers(0, STEPS_MAX * 2), st.integers(0, TIME_MAX * 2), SIGNATURES)
@example("run-1", "post-1", STEPS_MAX + 1, NOW, SIGNATURE)
@example("run-1", "post-1", STEPS_MAX, TIME_MAX + 1, SIGNATURE)
def test_a_settlement_like_one_before(charge: str, name: str, steps: int, time: int, signature: str) -> None:
    """Whatever charge, count, time and name it has, one bound too far or not."""
    data = _bytes("post", _post(charge, steps), name, time, signature)
    assert _quickly(data) == _strictly(data)


PIECES: Final = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b",",
    b" ",
    b"0",
    b"-",
    b".5",
    b"e3",
    b"\n",
    b"\xff",
    b'"a":1,',
    b"9" * 16,
)


@given(st.sampled_from(KNOWN), st.data())
def test_an_entry_changed_anywhere(known: bytes, data: st.DataObject) -> None:
    """A piece put in, or in the place of some bytes: it is read as it is strictly, or refused for the same reason."""
    at = data.draw(st.integers(0, len(known)))
    gone = data.draw(st.integers(0, 3))
    changed = known[:at] + data.draw(st.sampled_from(PIECES) | st.binary(max_size=3)) + known[at + gone :]
    assert _quickly(changed) == _strictly(changed)


@given(st.sampled_from(KNOWN), st.data())
def test_a_hole_that_holds_something_else(known: bytes, data: st.DataObject) -> None:
    """One value of an entry in the place of another, numbers spelled in other ways among them."""
    values = [one.span() for one in re.finditer(rb'(?<=:)("[^"]*"|[0-9]+)', known)]
    start, stop = data.draw(st.sampled_from(values))
    others = [known[a:b] for a, b in values] + [b"01", b"-0", b"1.0", b"1e3", b"null", b'""', b'"a b"', b'"\\u0041"']
    changed = known[:start] + data.draw(st.sampled_from(others)) + known[stop:]
    assert _quickly(changed) == _strictly(changed)


def test_a_request_that_only_looks_like_the_bodys_own() -> None:
    """An object deeper inside that begins like a request: the keys are the real request's, in every such entry."""
    other = public_key(private_key("another")).x
    for key in (ROOM[0], other):
        decoy = _charge(key, ROOM[1])["request"]
        data = _bytes("charge", _charge(*ROOM, aside={"request": decoy}))
        found = _quickly(data)
        assert found == _strictly(data)
        assert isinstance(found, Read)
        assert isinstance(found.effect, Charged)
        assert found.effect.signing == ROOM[0]


@pytest.mark.parametrize("name", ['a"request', '}"request', '\\"request', '{"request', ',"request', '"request'])
def test_a_name_that_only_ends_like_the_bodys_own_request(name: str) -> None:
    """A member of the body whose name has a quote in it, in front of what looks like a request: the same."""
    for key in (ROOM[0], public_key(private_key("another")).x):
        decoy = _charge(key, ROOM[1])["request"]
        data = _bytes("charge", _charge(*ROOM, aside=decoy, named=name))
        found = _quickly(data)
        assert found == _strictly(data)
        assert isinstance(found, Read)
        assert isinstance(found.effect, Charged)
        assert found.effect.signing == ROOM[0]


@pytest.mark.parametrize("word", ["voided", "pending", "permitted"])
def test_a_post_that_posted_nothing_is_refused(word: str) -> None:
    """What names executed steps posts them: with another outcome it would make them vanish."""
    body = {**_post("run-1", 40), "outcome": word}
    data = _bytes("post", body)
    assert _quickly(data) == _strictly(data) == "body.outcome: must be posted"


def test_an_entry_like_one_before_is_not_read_strictly() -> None:
    """What it has in common with that one is not made again."""
    for body in (_charge(*ROOM), _post("run-1", 40)):
        kind = "charge" if "author" in body else "post"
        first, second = (_quickly(_bytes(kind, body, name)) for name in ("one", "two"))
        assert isinstance(first, Read)
        assert isinstance(second, Read)
        assert second.id == "two"
        for one, other in zip(_common(first), _common(second), strict=True):
            assert one is other


def _common(found: Read) -> tuple[object, ...]:
    if isinstance(found.effect, Charged):
        return found.effect.charge.plan, found.effect.prices
    assert isinstance(found.effect, Settled)
    return (found.effect.outcome,)
