"""No data key leaves for an organisation that lineage has put over a cap, until it has voided what has not begun."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.audit.replay import verify_book
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.people import BANK_A, BANK_B, LOG, MERGED, SRO
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.book.governed import words

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
