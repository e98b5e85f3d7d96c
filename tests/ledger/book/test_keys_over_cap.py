"""No data key leaves for an organisation that lineage has put over a cap, until it has voided what has not begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from policy.decisions.releases import OVER_CAP_RELEASES_SINCE_MS
from tests.factories.documents import contract
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, HOUR_MS, LOG, MERGED, SRO
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.book.governed import publish, words

RUNS = 5
"""Of each bank: they fit its lineage, and those of both fit none."""


def _charge_all(world: StoredWorld) -> None:
    """Runs of both banks, all pending, one of each bank with its keys released."""
    sent = [world.charge(f"{bank[13]}-{n}", bank) for bank in (BANK_A, BANK_B) for n in range(RUNS)]
    assert set(words(world.submit(*sent))) == {"pending"}
    assert words(world.submit(world.release("a-0"), world.release("b-0", bank=BANK_B))) == ["permitted"] * 2


def _enter(kind: str, **body: c.Json) -> Callable[[StoredWorld], None]:
    def entered(world: StoredWorld) -> None:
        world.clock.now += 1
        outcome = world.send(SRO, kind, body, f"{kind}-1")
        assert outcome.code.word == "permitted", outcome.detail

    return entered


JOINED: dict[str, Callable[[StoredWorld], None]] = {
    "a merger": _enter("merger", organisation=MERGED, parents=[BANK_A, BANK_B]),
    "an acquisition": _enter("acquisition", organisation=BANK_A, acquired=[BANK_B]),
    "collusion": _enter("collusion", organisations=[BANK_A, BANK_B], effective=1),
    "a coalition": _enter("coalition", members=[BANK_A, BANK_B], epsilon="5"),
}


@pytest.mark.parametrize("name", JOINED)
def test_no_key_leaves_over_a_cap(world: StoredWorld, name: str) -> None:
    """Those that were released go on and are posted; voiding what has not begun makes room for the rest."""
    _charge_all(world)
    JOINED[name](world)
    (refused,) = world.submit(world.release("a-1"))
    assert (refused.code.word, refused.field) == ("conflict", "body.charge")
    assert "is over its cap: void charges that have not begun" in refused.detail
    assert words(world.submit(world.settle("a-0", 100), world.settle("b-0", 100, BANK_B))) == ["posted"] * 2
    voided = world.submit(*(world.void(f"b-{n}", BANK_B) for n in range(1, RUNS)))
    assert words(voided) == ["voided"] * (RUNS - 1)
    assert words(world.submit(*(world.release(f"a-{n}") for n in range(2, RUNS)))) == ["permitted"] * (RUNS - 2)
    verify_book(world.url, LOG, no_step, gate=gate)


def test_a_coalition_holds_back_all_that_it_follows(world: StoredWorld) -> None:
    """Also the member that has come to know nothing itself."""
    coalition = _enter("coalition", members=[BANK_A, BANK_B], epsilon="5")
    coalition(world)
    assert set(words(world.submit(*(world.charge(f"a-{n}") for n in range(RUNS))))) == {"pending"}
    merged = contract(MERGED, starts=world.begun, id="third")
    assert words(world.submit(world.document("contract", merged, "third", MERGED, MERGED, HOSPITAL))) == ["permitted"]
    world.contracts[MERGED] = c.digest(c.dump(merged))
    assert set(words(world.submit(*(world.charge(f"m-{n}", MERGED) for n in range(RUNS))))) == {"pending"}
    _enter("collusion", organisations=[BANK_B, MERGED], effective=1)(world)
    assert words(world.submit(world.release("a-1"))) == ["conflict"]


@pytest.mark.parametrize(("kind", "given"), [("transfer", {"recipient": BANK_A}), ("publication", {})])
def test_collusion_of_who_gave_a_model_counts(world: StoredWorld, kind: str, given: dict[str, c.Json]) -> None:
    """Reported after the charge, it adds what the giver's colluder knew to the model that was given before."""
    merged = contract(MERGED, starts=world.begun, id="third")
    assert words(world.submit(world.document("contract", merged, "third", MERGED, MERGED, HOSPITAL))) == ["permitted"]
    world.contracts[MERGED] = c.digest(c.dump(merged))
    sent = [*(world.charge(f"m-{n}", MERGED) for n in range(RUNS)), world.charge("b-0", BANK_B)]
    assert set(words(world.submit(*sent))) == {"pending"}
    assert words(world.submit(world.release("b-0", bank=BANK_B), world.settle("b-0", 100, BANK_B)))[1] == "posted"
    _enter(kind, charge="b-0", **given)(world)
    assert set(words(world.submit(*(world.charge(f"a-{n}") for n in range(RUNS))))) == {"pending"}
    assert words(world.submit(world.release("a-0"))) == ["permitted"]
    _enter("collusion", organisations=[BANK_B, MERGED], effective=1)(world)
    assert words(world.submit(world.release("a-1"))) == ["conflict"]
    voided = world.submit(*(world.void(f"a-{n}") for n in range(1, 4)))
    assert words(voided) == ["voided"] * 3
    verify_book(world.url, LOG, no_step, gate=gate)


def test_what_no_lineage_changed_is_held_to_nothing_new(world: StoredWorld) -> None:
    """A coalition that brings nothing, beside a cap that was lowered since, and a quota of another contract."""
    small = contract(BANK_A, starts=world.begun, id="small", share_max="0.3")
    world.submit(world.document("contract", small, "small", BANK_A, BANK_A, HOSPITAL))
    charge = world.charge("s-0", contract=c.digest(c.dump(small)))
    assert words(world.submit(charge, *(world.charge(f"a-{n}") for n in range(3)))) == ["pending"] * 4
    world.clock.now += 2_000
    publish(world, 2, lineage={"epsilon_max": "0.5"})
    world.clock.now += 2_000
    _enter("coalition", members=[BANK_A, MERGED], epsilon="6")(world)
    assert words(world.submit(world.release("s-0"), world.release("a-0"))) == ["permitted"] * 2


def _earlier_gate(request: Request, facts: Facts) -> Verdict:
    """That of the program before: it stated no caps for a key release."""
    found = gate(request, facts)
    return replace(found, caps=()) if request.command.kind == "key_release" else found


@pytest.mark.parametrize(("ahead_ms", "accepted"), [(-HOUR_MS, True), (HOUR_MS, False)])
def test_a_book_of_before_verifies(world: StoredWorld, ahead_ms: int, *, accepted: bool) -> None:
    """What an earlier program released until a date is accepted, beside what is refused today."""
    world.clock.now = OVER_CAP_RELEASES_SINCE_MS + ahead_ms
    sent = [world.charge(f"{bank[13]}-{n}", bank) for bank in (BANK_A, BANK_B) for n in range(RUNS)]
    assert set(words(world.submit(*sent))) == {"pending"}
    JOINED["a merger"](world)
    assert words(world.submit(world.release("a-1"))) == ["conflict"]
    world.book.close()
    world.book = world.open(gate=_earlier_gate)
    assert words(world.submit(world.release("a-0"))) == ["permitted"]
    world.reopen()
    if accepted:
        verify_book(world.url, LOG, no_step, gate=gate)
    else:
        with pytest.raises(VerificationFailed, match=r"outcome: is permitted, but conflict follows"):
            verify_book(world.url, LOG, no_step, gate=gate)


def test_what_fits_gets_its_keys(world: StoredWorld) -> None:
    """A merger alone withholds nothing."""
    world.submit(world.charge("a-1"), world.charge("b-1", BANK_B), world.merger())
    assert words(world.submit(world.release("a-1"), world.release("b-1", bank=BANK_B))) == ["permitted"] * 2


def test_a_model_that_is_handed_over_brings_its_run(world: StoredWorld) -> None:
    """The receiver's account has it from then on, and only the receiver's keys wait."""
    _charge_all(world)
    assert words(world.submit(world.settle("b-0", 100, BANK_B))) == ["posted"]
    world.clock.now += 1
    assert world.send(SRO, "transfer", {"charge": "b-0", "recipient": BANK_A}, "given").code.word == "permitted"
    sent = world.release("a-1"), world.release("b-1", bank=BANK_B)
    assert words(world.submit(*sent)) == ["conflict", "permitted"]
