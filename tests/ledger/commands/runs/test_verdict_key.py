"""Charges are alike only if no declared field of theirs differs, but for what each charge has for itself."""

from __future__ import annotations

from typing import Any, Final

import pytest

from ledger.accounts.pricing import COMPUTED
from ledger.audit.run_entry import read_signed
from ledger.commands.context import Context
from ledger.commands.entry import Entry
from ledger.commands.registry import read_body
from ledger.commands.runs.charge import verdict_key
from ledger.commands.runs.charge_entry import OWN, MakeCharge, Reserved
from ledger.commands.runs.charge_reader import read_request
from ledger.domain.command import Command
from ledger.domain.memory_state import MemoryState
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import NOW, dense_plan
from tests.factories.memory import ref_of
from tests.factories.people import BANKS, CleanRoom

KEY: Final = c.base64url(bytes(32))
FIRST: Final[dict[str, Any]] = {
    "clean_room": CleanRoom("a").to_json(),
    "contract": "c" * 64,
    "deadline": NOW,
    "partitions": [ref_of("a")],
    "plan": dense_plan(40),
}
OTHERS: Final[dict[str, Any]] = {
    "base": ["earlier"],
    "clean_room": CleanRoom("b").to_json(),
    "contract": "d" * 64,
    "deadline": NOW + 1,
    "partitions": [ref_of("b")],
    "pipeline": "e" * 64,
    "plan": dense_plan(41),
    "ranges": [{"dataset": ref_of("c").rpartition("/")[0], "first": "c", "last": "d"}],
    "recipients": "everyone",
    "step_leases": True,
    "unit_records_max": 2,
}
"""Another value of each declared field of a charge."""
RECORDED: Final[dict[str, Any]] = {
    "author": 3,
    "limits": [
        {"cap": {"epsilon": "2"}, "holder": "global", "partition": ref_of("a")},
    ],
    "plan": "e" * 64,
    "prices": {ref_of("a"): [{"price": [8, None, 9, 0], "steps": 40, "unit": 1}]},
    "alerts": [{"holder": "global", "partition": ref_of("a"), "share": "0.5"}],
    "refund": "stated",
    "groups": [[0, 1]],
}
"""Another value of each field that a charge's entry records beside its request."""


def _written(request: dict[str, Any], derived: dict[str, Any], actor: str = BANKS[0], key: str = KEY) -> bytes:
    body = {
        "author": 2,
        "limits": [],
        "outcome": "pending",
        "plan": "d" * 64,
        "prices": {ref: [{"price": [7, None, 9, 0], "steps": 40, "unit": 1}] for ref in request["partitions"]},
        "request": request,
        **({"groups": [[0, 1]]} if "ranges" in request else {}),
        **derived,
    }
    return Entry("charge", "run-1", NOW, actor, key, body, "eyJhbGciOiJFZDI1NTE5In0..AAAA").to_bytes()


def _by_the_writer(request: dict[str, Any], actor: str = BANKS[0], key: str = KEY) -> object:
    command = Command("charge", "run-1", actor, key, request)
    return verdict_key(Context(MemoryState(), command, _read(request), COMPUTED, (), NOW, 0, gate))


def _read(request: dict[str, Any]) -> MakeCharge:
    body = read_body(Command("charge", "run-1", BANKS[0], KEY, request))
    assert isinstance(body, MakeCharge)
    return body


def _by_verification(data: bytes) -> object:
    found = read_signed(data)
    return None if found is None else found.alike


@pytest.mark.parametrize("name", MakeCharge.__struct_fields__)
def test_another_value_of_any_field_makes_another_charge(name: str) -> None:
    """In the book and in verification; a charge's own clean room and deadline are checked of each. None is dropped."""
    changed = {**FIRST, name: OTHERS[name]}
    assert (_by_the_writer(changed) == _by_the_writer(FIRST)) == (name in OWN)
    first, found = _by_verification(_written(FIRST, {})), _by_verification(_written(changed, {}))
    assert first is not None
    assert (found == first) == (name in OWN)
    assert read_request(c.dump(changed)) == _read(changed) != _read(FIRST)


@pytest.mark.parametrize("name", Reserved.__struct_fields__)
def test_another_record_of_a_charge_is_not_alike(name: str) -> None:
    """Verification compares all that an entry records beside its request."""
    first, found = (_by_verification(_written(FIRST, one)) for one in ({}, {name: RECORDED[name]}))
    assert first is not None
    assert found != first


def test_another_author_or_key_makes_another_charge() -> None:
    """In the book and in verification."""
    for other in ({"actor": BANKS[1]}, {"key": c.base64url(bytes([1, *bytes(31)]))}):
        assert _by_the_writer(FIRST, **other) != _by_the_writer(FIRST)
        assert _by_verification(_written(FIRST, {}, **other)) != _by_verification(_written(FIRST, {}))
