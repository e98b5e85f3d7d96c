"""Reports of audited runs: a bound beside the claim, repeats, and the freeze of a pipeline by four in a row."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ledger.accounts.audit_bound import Tally, epsilon_least
from ledger.audit.replay import verify_book
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.people import BANK_A, LOG, CleanRoom
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.audited import AUDITED, CLAIM, FOUND, NOTHING, PIPELINE, leave, open_for_audit, report, run
from tests.ledger.book.governed import faults

OTHER = "b2" * 32


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A book whose contract opens its partition for audit; memory, rows and replay are compared in the end."""
    with open_world(tmp_path) as opened:
        open_for_audit(opened)
        yield opened
        opened.reopen()
        opened.is_checked = True


def test_the_entry_has_the_bound_beside_the_claim(world: StoredWorld) -> None:
    """As the theorem says of the plan's numbers; by the same charge there is no second report."""
    run(world, "audit-1")
    told = report(world, "audit-1", 150)
    assert told.code.word == "permitted", told
    found = {name: value for name, value in told.body.items() if name not in {"outcome", "request"}}
    least = epsilon_least(Tally(500, 200, 150), Fraction(1, 100_000))
    assert found == {
        "above": True,
        "audits": 1,
        "epsilon_least": format_number(least),
        "false_accusation_max": "0.00000625",
        "frozen": False,
        "pipeline": PIPELINE,
        "repeats": 3,
    }
    assert Fraction(1, 2) < least < Fraction(11, 10)
    assert report(world, "audit-1", 150).code.word == "conflict"


def test_four_in_a_row_freeze_the_pipeline_for_ever(world: StoredWorld) -> None:
    """Three and a good one do not; another pipeline's do not count; and a good one afterwards thaws nothing."""
    run(world, "model-1", SMALL)
    run(world, "model-2", SMALL, pipeline=OTHER)
    row = [FOUND, FOUND, FOUND, NOTHING, FOUND, FOUND, FOUND]
    repeats = []
    for place, correct in enumerate(row):
        run(world, f"audit-{place}")
        repeats.append(report(world, f"audit-{place}", correct).body["repeats"])
    assert repeats == [3, 2, 1, 0, 3, 2, 1]
    run(world, "elsewhere", pipeline=OTHER)
    assert report(world, "elsewhere").body["repeats"] == 3
    assert leave(world, "model-1").code.word == "permitted"
    run(world, "audit-last")
    last = report(world, "audit-last").body
    assert (last["frozen"], last["repeats"], last["audits"]) == (True, 0, 9)
    assert last["false_accusation_max"] == format_number(Fraction(9, 160_000))
    world.reopen()
    assert faults(leave(world, "model-1")) == {"pipeline_frozen"}
    assert leave(world, "model-2").code.word == "permitted"
    run(world, "audit-late")
    assert report(world, "audit-late", NOTHING).body["frozen"] is True
    assert faults(leave(world, "model-1")) == {"pipeline_frozen"}


def test_an_auditor_verifies_the_reports(world: StoredWorld) -> None:
    """With the policy and without it."""
    run(world, "audit-1")
    assert report(world, "audit-1").code.word == "permitted"
    world.book.close()
    for decides in (gate, None):
        verify_book(world.url, LOG, no_step, gate=decides)
    world.book = world.open()


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"correct": 201}, "malformed", "body.correct"),
        ({"epsilon_claimed": format_number(CLAIM - Fraction(1, 100))}, "malformed", "body.epsilon_claimed"),
        ({"epsilon_claimed": format_number(CLAIM + Fraction(1, 10))}, "malformed", "body.epsilon_claimed"),
        ({"epsilon_claimed": format_number(CLAIM + Fraction(1, 1000))}, "malformed", "body.epsilon_claimed"),
        ({"plan": {**AUDITED, "canaries": 501}}, "conflict", "body.plan"),
        ({"plan": SMALL}, "conflict", "body.plan"),
        ({"charge": "none"}, "not_found", "body.charge"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(
    world: StoredWorld, changes: dict[str, Any], code: str, field: str
) -> None:
    """By field; nothing of it counts."""
    run(world, "audit-1")
    refused = report(world, "audit-1", **{"correct": FOUND, **changes})
    assert (refused.code.word, refused.field) == (code, field)
    assert report(world, "audit-1").body["audits"] == 1


def test_only_the_run_s_own_room_reports_and_only_a_whole_run(world: StoredWorld) -> None:
    """After its post; the bank's key, another room's, a run of no step and one that was not audited are refused."""
    run(world, "audit-1")
    body: c.Object = {
        "charge": "audit-1",
        "correct": FOUND,
        "epsilon_claimed": format_number(CLAIM),
        "plan": AUDITED,
    }
    assert world.send(BANK_A, "audit_report", body, "by-bank").code.word == "not_authorised"
    run(world, "plain", SMALL)
    by_other = world.send(BANK_A, "audit_report", body, "by-room", CleanRoom("plain").signer)
    assert by_other.code.word == "not_authorised"
    assert report(world, "plain").field == "body.plan"
    assert report(world, "plain", plan=SMALL).field == "body.plan"
    run(world, "short", steps=0)
    assert (report(world, "short").code.word, report(world, "short").field) == ("conflict", "body.charge")
    (pending,) = world.submit(world.charge("waits", run=AUDITED, pipeline=PIPELINE))
    assert pending.code.word == "pending"
    assert report(world, "waits").code.word == "conflict"


def test_canaries_that_no_provider_agreed_to_are_not_charged(world: StoredWorld) -> None:
    """No pipeline, too many canaries, another partition, another bank's contract without a word of audits."""
    (unnamed,) = world.submit(world.charge("unnamed", run=AUDITED))
    assert faults(unnamed) == {"pipeline_not_named"}
    many = {**AUDITED, "canaries": 1_001}
    assert faults(world.submit(world.charge("many", run=many, pipeline=PIPELINE))[0]) == {"canaries_above_contract"}
    (opened,) = world.submit(world.partition("2027-q1"))
    assert opened.code.word == "permitted"
    other = "did:web:hospital.example/digits/2027-q1"
    (beside,) = world.submit(world.charge("beside", run=AUDITED, pipeline=PIPELINE, partitions=(other,)))
    assert faults(beside) == {"audit_not_agreed"}
    (stranger,) = world.submit(world.charge("stranger", "did:web:bank-b.example", AUDITED, pipeline=PIPELINE))
    assert faults(stranger) == {"audit_not_agreed"}
    with world.read() as facts:
        assert not facts.audits
