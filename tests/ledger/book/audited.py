"""Audited runs in a stored world: a contract that opens a partition for audit, runs, and what their rooms report."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.book.submitted_command import Outcome
from ledger.commands.runs.audit_report import claim_of
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from tests.factories.documents import NONCE, PARTITION, SMALL, attestation
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.stored import StoredWorld
from tests.ledger.book.governed import MODEL, amended, words

AUDITED: Final[c.Object] = {"canaries": 500, "guesses": 200, "kind": "audited", "training": SMALL, "v": 1}
PIPELINE: Final = "a1" * 32
CLAIM: Final = claim_of(
    reported_epsilon(AuditedPlan.of(parse_plan(AUDITED)).whole, Fraction(1, 100_000), "REPLACE_SPECIAL")
)
FOUND, NOTHING = 200, 100
"""Right guesses that disprove the claim, and no more than coins would give."""


def open_for_audit(world: StoredWorld, **terms: c.Json) -> str:
    """The bank's contract's second version, which opens the partition for audit; its digest."""
    audit: dict[str, Any] = {"canaries_max": 1_000, "partitions": [PARTITION], **terms}
    agreed = amended(audit=audit)
    (done,) = world.submit(world.document("contract", agreed, f"contract-audit-{world.size}", BANK_A, BANK_A, HOSPITAL))
    assert done.code.word == "permitted", done
    world.contracts[BANK_A] = c.digest(c.dump(agreed))
    return world.contracts[BANK_A]


def run(world: StoredWorld, name: str, plan: c.Object = AUDITED, *, pipeline: str = PIPELINE, steps: int = 1) -> None:
    """A run of the pipeline from charge to post."""
    room = CleanRoom(name)
    stated: dict[str, Any] = {"pipeline": pipeline} if pipeline else {}
    done = world.submit(world.charge(name, run=plan, **stated))
    evidence = world.put(attestation(room, name, c.digest(c.dump(plan)), world.clock.now, **stated), room.signer)
    body: c.Object = {"charge": name, "evidence": evidence, "nonce": NONCE}
    done += world.submit(world.command(BANK_A, "key_release", body, f"release-{name}", room.signer))
    settled: c.Object = {"charge": name, "steps": steps}
    done += world.submit(world.command(BANK_A, "post", settled, f"post-{name}", room.signer))
    assert words(done) == ["pending", "permitted", "posted"], done


def report(world: StoredWorld, name: str, correct: int = FOUND, **changes: c.Json) -> Outcome:
    """What the clean room of an audited run reports."""
    body: c.Object = {
        "charge": name,
        "correct": correct,
        "epsilon_claimed": format_number(CLAIM),
        "plan": AUDITED,
        **changes,
    }
    return world.send(BANK_A, "audit_report", body, f"audit-{name}-{world.size}", CleanRoom(name).signer)


def leave(world: StoredWorld, name: str) -> Outcome:
    """The clean room of a run announces its model and requests its release."""
    body: c.Object = {"charge": name, "model": MODEL}
    room = CleanRoom(name).signer
    world.send(BANK_A, "release_notice", body, f"notice-{name}-{world.size}", room)
    return world.send(BANK_A, "model_release", body, f"model-{name}-{world.size}", room)
