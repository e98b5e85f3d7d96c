"""A consumer hands a model over with its recipient's agreement alone: all that it knows counts for the other too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.commands.organisation_lineage.model_transfer import AGREED_SINCE_MS, Agreement, TransferClaim
from ledger.domain.decision import Decision
from ledger.wire import canonical_json as c
from ledger.wire.records import write
from tests.factories.memory import PermissiveWorld
from tests.factories.people import BANKS, DAY_MS, SRO
from tests.ledger.commands.organisation_lineage.test_lineage_events import LOUD, QUIET, enter, fresh, knows, run
from tests.ledger.organisation_lineage.test_lineage_graph import CONTRACTS

A, B, C, D = BANKS


def dated(ahead_ms: int = 0) -> PermissiveWorld:
    """Four banks, so long after the date; A's run was posted."""
    world = fresh()
    world.clock.now = AGREED_SINCE_MS + ahead_ms
    run(world, "given", A)
    return world


def give(world: PermissiveWorld, agreement: c.Json = None, charge: str = "given", **body: c.Json) -> Decision:
    """A's own report that B has its model."""
    agreed: c.Object = {} if agreement is None else {"agreement": agreement}
    return enter(world, "transfer", A, charge=charge, recipient=B, **agreed, **body)


@pytest.mark.parametrize(("ahead_ms", "word"), [(-10_000, "permitted"), (0, "signature_missing")])
def test_until_the_date_a_giver_s_own_report_was_enough(ahead_ms: int, word: str) -> None:
    """Replay decides by the time of the entry."""
    world = dated(ahead_ms)
    decided = give(world)
    assert (decided.code.word, knows(world, B)) == (word, {"given"} if word == "permitted" else set())


def test_a_transfer_without_an_agreement_says_who_is_to_sign() -> None:
    """Nothing is recorded, and the recipient's accounts stay as they are; an SRO's report needs no agreement."""
    world = dated()
    size, refused = world.index, give(world)
    assert (refused.code.word, refused.field, world.index) == ("signature_missing", "body.agreement", size)
    assert f"{B} has not agreed to this transfer, which brings 1 runs: have it sign, or have an SRO" in refused.detail
    assert knows(world, B) == set()
    assert enter(world, "transfer", SRO, charge="given", recipient=B).code.word == "permitted"
    assert knows(world, B) == {"given"}


@pytest.mark.parametrize("named", [{}, {"giver": A}])
def test_what_the_recipient_signed_is_permitted(named: dict[str, str]) -> None:
    """All that the giver knew by then, the run itself and others."""
    world = dated()
    run(world, "more", A)
    assert give(world, world.agreement("given", A, B, 2), **named).code.word == "permitted"
    assert knows(world, B) == {"given", "more"}


def _claim(
    world: PermissiveWorld, charge: str = "given", giver: str = A, recipient: str = B, runs: int = 9
) -> c.Object:
    """What B signed, as an agreement to nine runs."""
    claim = write(TransferClaim(charge, giver, recipient, runs))
    return Agreement(world.signers[B].sign(claim), 9).to_json()


def _by(name: str) -> Callable[[PermissiveWorld], c.Object]:
    return lambda world: world.agreement("given", A, B, 9, world.signers[name])


FORGED: dict[str, Callable[[PermissiveWorld], c.Object]] = {
    "by its giver": _by(A),
    "by another bank": _by(C),
    "by a key that is not on record": _by("none"),
    "of another charge": lambda world: _claim(world, charge="other"),
    "of another giver": lambda world: _claim(world, giver=C),
    "of another recipient": lambda world: _claim(world, recipient=C),
    "of fewer runs": lambda world: _claim(world, runs=8),
    "of no signature": lambda _: {"runs": 9, "signature": "a..b"},
    "of text": lambda _: {"runs": 9, "signature": "I agree"},
    "of other bytes": lambda world: {"runs": 9, "signature": world.signers[B].sign(b"{}")},
}


@pytest.mark.parametrize("name", FORGED)
def test_an_agreement_to_something_else_is_refused_by_its_field(name: str) -> None:
    """The refusal says what to do; nothing is recorded."""
    world = dated()
    run(world, "other", A)
    size, refused = world.index, give(world, FORGED[name](world))
    assert (refused.code.word, refused.field) == ("signature_invalid", "body.agreement.signature")
    assert "have the recipient sign this transfer again, or have an SRO enter it" in refused.detail
    assert (world.index, knows(world, B)) == (size, set())


@pytest.mark.parametrize("kind", ["key_revocation", "key_suspension"])
def test_a_key_that_no_longer_counts_agrees_to_nothing(kind: str) -> None:
    """Also where it counted when it signed."""
    world = dated()
    agreement = world.agreement("given", A, B, 9)
    body: c.Object = {"keys": [world.signers[B].key_id], "reason": "a theft"}
    stopped: c.Object = {"suspended": True} if kind == "key_suspension" else {}
    assert enter(world, kind, SRO, **body, **stopped).code.word == "permitted"
    refused = give(world, agreement)
    assert (refused.code.word, refused.field) == ("signature_invalid", "body.agreement.signature")


def test_what_the_giver_learns_later_is_not_agreed_to() -> None:
    """Neither a run of its own that has not begun, nor what another one gives to it; a new agreement is to them all."""
    world = dated()
    agreement = world.agreement("given", A, B, 1)
    assert world.decide_charge("later", A, CONTRACTS[A], ("one",), QUIET).code.word == "pending"
    refused = give(world, agreement)
    assert (refused.code.word, refused.field) == ("conflict", "body.agreement.runs")
    assert f"this brings more than 1 runs, to which {B} agreed: have the recipient sign" in refused.detail
    assert knows(world, B) == set()
    again = world.agreement("given", A, B, 2)
    run(world, "of-c", C)
    assert enter(world, "transfer", SRO, charge="of-c", recipient=A).code.word == "permitted"
    assert give(world, again).field == "body.agreement.runs"
    assert give(world, world.agreement("given", A, B, 3)).code.word == "permitted"
    assert knows(world, B) == {"given", "later", "of-c"}


def test_a_run_that_is_voided_makes_no_room_for_another() -> None:
    """Else a giver would charge small runs, have them agreed to, and put large ones in their place."""
    world = dated()
    assert world.decide_charge("small", A, CONTRACTS[A], ("one",), QUIET).code.word == "pending"
    agreement = world.agreement("given", A, B, 2)
    assert world.decide_void("small").code.word == "voided"
    assert world.decide_charge("large", A, CONTRACTS[A], ("one",), LOUD).code.word == "pending"
    assert give(world, agreement).field == "body.agreement.runs"


def test_a_giver_gets_no_count_of_runs_that_others_made() -> None:
    """A giver of models that it got, too, has its own runs alone counted for it."""
    world = dated()
    run(world, "of-c", C)
    assert enter(world, "transfer", SRO, charge="of-c", recipient=A).code.word == "permitted"
    assert f"{B} has not agreed to this transfer: have it sign" in give(world).detail


def test_a_run_that_named_its_recipient_brings_what_it_was_charged_on() -> None:
    """So an agreement to that much holds, whatever the giver learns later."""
    world = dated()
    run(world, "meant", A, recipients=[B])
    run(world, "later", A)
    assert give(world, world.agreement("meant", A, B, 1), charge="meant").field == "body.agreement.runs"
    assert give(world, world.agreement("meant", A, B, 2), charge="meant").code.word == "permitted"
    assert knows(world, B) == {"given", "meant"}


def test_an_agreement_is_used_once() -> None:
    """Again it would bring nothing, and add a node each day."""
    world = dated()
    agreement = world.agreement("given", A, B, 1)
    assert give(world, agreement).code.word == "permitted"
    used = world.index - 1
    world.clock.now += 2 * DAY_MS
    refused = give(world, agreement)
    assert (refused.code.word, refused.field) == ("conflict", "body.recipient")
    assert f"entry {used} is of the same giver: an SRO may enter it again" in refused.detail


def test_an_sro_s_report_is_checked_where_it_brings_an_agreement() -> None:
    """No entry holds a signature that nobody has verified."""
    world = dated(-10_000)
    for agreement, word in ((_claim(world, charge="other"), "signature_invalid"), (_claim(world), "permitted")):
        decided = enter(world, "transfer", SRO, charge="given", recipient=B, agreement=agreement)
        assert decided.code.word == word, decided.detail


@pytest.mark.parametrize(("ahead_ms", "word"), [(-10_000, "permitted"), (0, "conflict")])
def test_a_run_of_no_step_has_no_model_to_hand_over(ahead_ms: int, word: str) -> None:
    """A run whose keys were never released costs its author nothing. An SRO reports it still."""
    world = dated(ahead_ms)
    assert world.decide_charge("empty", A, CONTRACTS[A], ("one",), QUIET).code.word == "pending"
    assert world.post("empty", 0).code.word == "posted"
    decided = give(world, world.agreement("empty", A, B, 9), charge="empty")
    assert decided.code.word == word, decided.detail
    if decided.code.refused:
        assert (decided.field, "posted for 0 steps" in decided.detail) == ("body.charge", True)
        assert enter(world, "transfer", SRO, charge="empty", recipient=B).code.word == "permitted"


def test_one_s_own_lineage_needs_no_agreement() -> None:
    """It knows the run already, which is all that is said of it."""
    world = dated()
    for recipient in (A, D):
        if recipient == D:
            assert enter(world, "merger", SRO, organisation=A, parents=[D]).code.word == "permitted"
        refused = enter(world, "transfer", A, charge="given", recipient=recipient)
        assert (refused.code.word, refused.field) == ("conflict", "body.recipient")
