"""Registrations, documents, partitions and retirements: what each guard refuses, one part wrong at a time."""

from __future__ import annotations

from typing import Any, Final

import pytest

from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, partition, recommendation
from tests.factories.memory import MemoryWorld, ref_of
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, SRO, TSO, registration


def founded() -> MemoryWorld:
    """A book with everything that a charge needs."""
    world = MemoryWorld()
    world.found()
    return world


FOUNDED: Final = founded()


def _body(did: str, holder: str = "", role: str = "TDP") -> c.Object:
    """A registration whose possession another one may have signed."""
    signers = FOUNDED.signers
    body = registration(did, signers[did], role)
    return {**body, "possession": registration(did, signers[holder], role)["possession"]} if holder else body


def _with_key_of(did: str, owner: str) -> c.Object:
    return {**registration(did, FOUNDED.signers[owner], "TDP")}


@pytest.mark.parametrize(
    ("actor", "body", "expected"),
    [
        (SRO, _body(CLINIC), ("permitted", "")),
        (BANK_A, _body(CLINIC), ("not_authorised", "actor")),
        (SRO, _body(HOSPITAL), ("conflict", "body.organisation")),
        (SRO, _with_key_of(CLINIC, HOSPITAL), ("conflict", "body.key")),
        (SRO, _body(CLINIC, holder=HOSPITAL), ("signature_invalid", "body.possession")),
        (SRO, {**_body(CLINIC), "name": "another name"}, ("signature_invalid", "body.possession")),
        (SRO, {**_body(CLINIC), "roles": ["SRO"]}, ("signature_invalid", "body.possession")),
    ],
)
def test_an_organisation_is_registered_once_with_a_key_that_it_holds(
    actor: str, body: c.Object, expected: tuple[str, str]
) -> None:
    """By an SRO; what its key signed is its name, its roles and itself."""
    done = FOUNDED.fork().send(actor, "organisation", body, "registered")
    assert (done.code.word, done.field) == expected


@pytest.mark.parametrize(("actor", "did", "role"), [(BANK_A, BANK_A, "TDC"), (SRO, BANK_A, "SRO"), (SRO, SRO, "TDP")])
def test_the_first_entry_is_an_sro_that_registers_itself(actor: str, did: str, role: str) -> None:
    """Nobody else begins a book."""
    world = MemoryWorld()
    body = registration(did, world.signers[did], role)
    assert world.send(actor, "organisation", body, "first").code.word in {"not_authorised", "signature_invalid"}
    assert (world.index, world.send(SRO, "organisation", _body(SRO, role="SRO"), "begun").code.word) == (0, "permitted")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ("permitted", "")),
        ({"partition": "2026-q4"}, ("conflict", "")),
        ({"data_key": "digits-2026-q4"}, ("conflict", "body.data_key")),
        ({"epsilon": "0"}, ("malformed", "body.epsilon")),
        ({"delta": "0.000000000001"}, ("malformed", "body.delta")),
        ({"delta": "1"}, ("malformed", "body.delta")),
        ({"delta": "0.00001", "slack": "0.00001"}, ("malformed", "body.slack")),
        ({"unit": "user"}, ("malformed", "body.unit_records_max")),
        ({"unit_records_max": 2}, ("malformed", "body.unit_records_max")),
        ({"prices": [1]}, ("malformed", "body.prices")),
        ({"rule": "fairness"}, ("malformed", "body.rule")),
        ({"provider": CLINIC}, ("policy_denied", "")),
    ],
)
def test_a_partition_opens_with_a_budget_that_its_rule_can_hold(
    change: dict[str, Any], expected: tuple[str, str]
) -> None:
    """Under a name and a data key of its own."""
    world = FOUNDED.fork()
    before = dict(world.state.partitions)
    done = world.send(HOSPITAL, "partition", partition("2027-q1", **change), "opened")
    assert (done.code.word, done.field) == expected, done.detail
    opened = world.state.partitions.keys() - before.keys()
    assert opened == ({ref_of("2027-q1")} if expected[0] == "permitted" else set())


@pytest.mark.parametrize(
    ("actor", "ref", "expected"),
    [
        (HOSPITAL, PARTITION, ("permitted", "")),
        (BANK_A, PARTITION, ("not_authorised", "actor")),
        (HOSPITAL, ref_of("2030-q1"), ("not_found", "body.partition")),
    ],
)
def test_a_partition_is_retired_by_its_provider_once(actor: str, ref: str, expected: tuple[str, str]) -> None:
    """What is retired takes no charge, and does not retire again."""
    world = FOUNDED.fork()
    done = world.send(actor, "retirement", {"partition": ref}, "retired")
    assert (done.code.word, done.field) == expected
    assert world.state.partitions[PARTITION].retired is (expected[0] == "permitted")
    if expected[0] == "permitted":
        again = world.send(actor, "retirement", {"partition": ref}, "again")
        assert (again.code.word, again.field) == ("conflict", "body.partition")
        assert world.submit(world.charge("late"))[0].code.refused


def test_a_document_enters_with_signatures_over_its_own_bytes() -> None:
    """Of organisations on record: one of another document, of no one, or of nothing that is stored is refused."""
    world = FOUNDED.fork()
    world.found(world.registration(TSO, "TSO"))
    data = c.dump(recommendation("digits-2026"))
    document, signature = world.store(world.signers[TSO], data)
    other = world.put(world.signers[TSO].sign(data + b" ").encode(), world.signers[TSO])
    stranger = world.put(world.signers[BANK_B + ".org"].sign(data).encode(), world.signers[TSO])
    for place, wrong in enumerate((other, stranger, "0" * 64, document)):
        body: c.Object = {"document": document, "signatures": [wrong]}
        done = world.send(TSO, "recommendation", body, f"wrong-{place}")
        assert done.code.word in {"signature_invalid", "not_found"}, done.detail
        assert done.field == "body.signatures[0]"
    body = {"document": "0" * 64, "signatures": [signature]}
    done = world.send(TSO, "recommendation", body, "absent")
    assert (done.code.word, done.field) == ("not_found", "body.document")
    body = {"document": document, "signatures": [signature]}
    assert world.send(TSO, "recommendation", body, "entered").code.word == "permitted"
    entered = world.state.datasets[HOSPITAL, "digits"].recommendation
    assert entered == document
