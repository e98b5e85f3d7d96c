"""The reader of commands and an independent model of it accept the same bytes, as the same values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.commands.registry import KINDS, read_command
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.ledger.commands import command_fields as fields
from tests.ledger.commands import command_model as model
from tests.ledger.commands.test_command_bodies import BODIES, DIGEST, KEY, OPTIONAL, REF, X, command
from tests.ledger.mechanisms.test_plan import PLAN

GONE: Final = object()
"""As a new value: take the field or the item away."""
DID: Final = "did:web:bank-a.example"
Path = tuple[str | int, ...]


def _ec_key() -> dict[str, Any]:
    numbers = ec.derive_private_key(7, ec.SECP256R1()).public_key().public_numbers()
    x, y = (c.base64url(one.to_bytes(32, "big")) for one in (numbers.x, numbers.y))
    return {"crv": "P-256", "kty": "EC", "x": x, "y": y}


def _rsa_key() -> dict[str, Any]:
    number = rsa.generate_private_key(65_537, 2_048).public_key().public_numbers().n
    return {"e": "AQAB", "kty": "RSA", "n": c.base64url(number.to_bytes(256, "big"))}


def _plan(kind: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "buckets": 4,
        "delta": "0.00001",
        "epsilon": "0.5",
        "mu_square": "0.01",
        "noise": "1/3",
        "noise_multiplier": "4",
        "probability": "1/186",
        "relation": "REPLACE_ONE",
        "rho": "0.01",
        "steps": 186,
        "xi": "0",
    }
    mechanism = {name: values[name] for name in fields.MECHANISMS[kind]}
    return {"kind": "mechanism", "mechanism": {**mechanism, "kind": kind, "v": 1}, "v": 1}


GOOD: Final[list[dict[str, Any]]] = [
    *(command(kind) for kind in KINDS),
    *(command(kind, body={**BODIES[kind], **more}) for kind, more in OPTIONAL.items()),
    *(command("organisation", body={**BODIES["organisation"], "key": key}) for key in (_ec_key(), _rsa_key())),
    *(command("charge", body={**BODIES["charge"], "plan": _plan(kind)}) for kind in fields.MECHANISMS),
    command("partition", body={**BODIES["partition"], "unit": "user", "unit_records_max": 64, "slack": "0.000001"}),
    command("charge", body={**BODIES["charge"], "plan": {**PLAN, "unit": "user"}}),
]
TEXTS: Final = (
    *("", " ", "0", "1", "-1", "00", "01", "1.0", "0.5", "1e-5", "1/2", "2/3", "4/6", "3/1", "1/1000000007", "٣"),
    *("0.000000000000000001", "0.0000000000000000001", "9" * 18, "1" + "0" * 18, "128", "256.5", "1000000.5", "NaN"),
    *("a", "a/b", "a" * 128, "a" * 129, "é", "\0", "\ud800", "\U0001f510", "a\n", "record", "user", "global"),
    *(DID, DID.upper(), f"{DID}:", f"{DID}:x", f"did:web:{'a' * 201}", "did:a:" + ":".join("b" * 10), f"{DID}\n"),
    *(REF, f"{REF}/x", "lineage:0", "lineage:07", f"lineage:{'1' * 33}", DIGEST, DIGEST.upper(), DIGEST[1:]),
    *("t" * 200, "t" * 201, "t" * 1_000, "t" * 1_001, "t" * 2_000, "t" * 2_001, f"lineage:{'1' * 32}"),
    *("0.01", "0.009", "1000000", "1000001", "0.000000001", "0.0000000009", "256", "0.50001", "1.00001"),
    *("1000000000", "1000000001", "0.000001", "0.0000009", "0.000000000001", "0.0000000000009"),
    *("1/4503599627370496", "1/4503599627370497", "did:a:" + ":".join("b" * 9), f"did:{'a' * 33}:b"),
    *(f"did:{'a' * 32}:{'b' * 200}", f"did:a:{'b' * 200}:{'b' * 48}", f"did:a:{'b' * 200}:{'b' * 49}"),
    *(X, f"{X}=", f"{X[:-1]}9", X[:-1], "+" + X[1:], "A" * 43, "REPLACE_ONE", "AQAB", "gaussian", "zz"),
)
OTHERS: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2, 16, 17, 64, 65, 10_000_000, 10_000_001, 10**6, 10**6 + 1, 10**12, 10**12 + 1),
    *(fields.INTEGER_MAX, fields.INTEGER_MAX + 1, 253_402_300_799_999, 253_402_300_800_000, 1.0, 0.5),
    *([], [DID], [DID, DID], [DID, f"{DID}:b"], [REF], [DIGEST], [X], ["TDC"], ["TDC", "SRO"], [[DID]], [None]),
    *({}, KEY, {**KEY, "crv": "X25519"}, {**KEY, "x": c.base64url(bytes(32))}, {**KEY, "d": X}, PLAN),
)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401 - JSON
    """Where a value has parts."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*path, name)
        yield from _paths(one, (*path, name))


def _lists(old: Any) -> Iterator[list[str]]:  # noqa: ANN401 - JSON
    """Lists of different items like those of a list, as many as a rule allows, and one more."""
    if isinstance(old, list):
        for size in (1, 2, 5, 6, 16, 17, 32, 33, 64, 65):
            yield [f"{at:064x}" if old == [DIGEST] else f"{old[0]}{at}" for at in range(size)]


def _at(value: Any, path: Path) -> Any:  # noqa: ANN401 - JSON
    for step in path:
        value = value[step]
    return value


def _changed(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401 - JSON
    """The value with another one at the path; what lies elsewhere is shared."""
    step, *inside = path
    changed = value.copy()
    if inside:
        changed[step] = _changed(value[step], tuple(inside), new)
    elif new is GONE:
        del changed[step]
    else:
        changed[step] = new
    return changed


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A value that was read, as JSON; without the fields that were not there."""
    return json.loads(msgspec.json.encode(value.to_json()))


def agree(data: bytes) -> bool:
    """Hold the reader to the model; whether both accept."""
    try:
        value, canonical = model.read(data)
    except model.Refused:
        # Without pytest's own context, which takes longer than the reader.
        try:
            read_command(data)
        except Malformed:
            return False
        pytest.fail(f"the model refuses what the reader accepts: {data!r}")
    pending = read_command(data)
    read, body = pending.command, pending.body
    assert read.to_bytes() == canonical == data
    assert (read.kind, read.id, read.actor, read.key_id) == tuple(value[n] for n in ("kind", "id", "actor", "key_id"))
    assert _plain(body) == read.body == value["body"]
    for name, rule in fields.BODIES[read.kind].items():
        if name in value["body"] and rule.removeprefix("optional ").startswith("number"):
            assert getattr(body, name) == Fraction(value["body"][name])
    return True


def _bytes(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """Canonical bytes; of what has none, other bytes of the same value."""
    try:
        return model.write(value)
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _fields() -> Iterator[tuple[dict[str, Any], Path]]:
    """Every place in the good commands; one that differs from another in nothing but its neighbours, once."""
    seen = set()
    for good in GOOD:
        for path in _paths(good):
            parent = _at(good, path[:-1])
            tags = (parent.get("kind"), parent.get("kty")) if isinstance(parent, dict) and len(path) > 1 else ()
            place = (good["kind"] if len(path) > 1 else "", path, tags)
            if place not in seen:
                seen.add(place)
                yield good, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_field(kind: str) -> None:
    """Each field missing, replaced by each value of the lists, or joined by another: reader and model agree."""
    accepted = 0
    for good, path in _fields():
        if good["kind"] == kind:
            assert agree(_bytes(good))
            for new in (GONE, *TEXTS, *OTHERS, *_lists(_at(good, path))):
                accepted += agree(_bytes(_changed(good, path, new)))
            assert not isinstance(path[-1], str) or not agree(_bytes(_changed(good, (*path[:-1], "extra"), 1)))
    assert accepted


def _mutated(draw: st.DrawFn) -> bytes:
    value = draw(st.sampled_from(GOOD))
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from([*_paths(value)]))
        value = _changed(value, path, draw(_replacements(_at(value, path))))
    return draw(_spellings(value))


def _replacements(old: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - JSON
    """What takes the place of a value: nothing, anything from the lists, or something near it."""
    near: list[st.SearchStrategy[Any]] = [st.just(GONE), st.sampled_from([*TEXTS, *OTHERS])]
    if isinstance(old, str):
        near.append(
            st.builds(lambda at, new: old[:at] + new + old[at + 1 :], st.integers(0, len(old)), st.text(max_size=2))
        )
        near.append(st.integers(0, 4_000).map(lambda times: (old or "a") * times))
    if isinstance(old, int):
        near.append(st.integers(-2, 2).map(lambda by: old + by) | st.integers(-(2**60), 2**60))
    if isinstance(old, list):
        near.append(st.integers(0, 70).map(lambda size: [f"{one}{at}" for at in range(size) for one in old[:1]]))
        near.append(st.permutations(old))
        near.append(st.just([*old, *old]))
    if isinstance(old, dict):
        near.append(st.text(max_size=3).map(lambda name: {**old, name: 1}))
    return st.one_of(near)


@st.composite
def _spellings(draw: st.DrawFn, value: Any) -> bytes:  # noqa: ANN401 - JSON
    """The canonical bytes of a value, or bytes that are wrong in their spelling alone."""
    data = _bytes(value)
    match draw(st.sampled_from(["canonical"] * 6 + ["order", "twice", "spaces", "escapes", "byte", "cut"])):
        case "order":
            names = draw(st.permutations([*value]))
            data = b"{" + b",".join(_bytes(name) + b":" + _bytes(value[name]) for name in names) + b"}"
        case "twice":
            name = draw(st.sampled_from([*value])) if value else "v"
            data = data[:-1] + b"," + _bytes(name) + b":" + _bytes(value.get(name)) + b"}"
        case "spaces":
            data = json.dumps(value, sort_keys=True).encode()
        case "escapes":
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + b"\\u%04x" % data[at] + data[at + 1 :]
        case "byte":
            at = draw(st.integers(0, len(data) - 1))
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        case "cut":
            data = data[: draw(st.integers(0, len(data)))]
    return data


@settings(max_examples=300, deadline=None)
@given(st.composite(_mutated)())
def test_mutated_commands(data: bytes) -> None:
    """Up to two changes anywhere, in the canonical spelling or another: reader and model agree, and so do the bytes."""
    assert not agree(data) or read_command(data).command.to_bytes() == data


def test_the_model_has_every_kind() -> None:
    """And no other, each with the fields that its good command has."""
    assert fields.BODIES.keys() == set(KINDS)
    for kind in KINDS:
        assert BODIES[kind].keys() | OPTIONAL.get(kind, {}).keys() <= fields.BODIES[kind].keys()
