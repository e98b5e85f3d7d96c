"""Many commands in one call: each has its own outcome, in order; and no price is worked out inside the writer."""

from __future__ import annotations

from ledger.store.tables import CHECKPOINT
from tests.factories.documents import SMALL, plan
from tests.factories.people import BANK_B, HOSPITAL
from tests.factories.stored import StoredWorld, rows

OTHER = f"{HOSPITAL}/digits/other"


def commits(world: StoredWorld) -> int:
    """How often the writer committed entries."""
    return len(rows(world.url)[CHECKPOINT.name])


def test_each_command_of_a_call_has_its_own_outcome_in_order(world: StoredWorld) -> None:
    """What one opens, the next charges; what is refused stops none after it; what is malformed is answered too."""
    world.book.submit([])
    before = commits(world)
    outcomes = world.submit(
        world.charge("early", run=SMALL, partitions=(OTHER,)),
        world.partition("other"),
        world.charge("first", run=SMALL, partitions=(OTHER,)),
        world.charge("second", BANK_B, run=SMALL, partitions=(OTHER,)),
        world.charge("much", run=plan(100_000), partitions=(OTHER,)),
        world.void("first"),
        world.charge("early", run=SMALL, partitions=(OTHER,)),
    )
    words = [one.code.word for one in outcomes]
    assert words == ["not_found", "permitted", "pending", "pending", "policy_denied", "voided", "pending"]
    indices = [one.index for one in outcomes if one.index is not None]
    assert indices == sorted(indices)
    # A charge waits for the commit that opens its partition, so that it is priced before the writer has it.
    assert commits(world) - before == 2


def test_charges_that_nothing_before_them_changes_share_a_commit(world: StoredWorld) -> None:
    """Sixteen in one call: one commit."""
    before = commits(world)
    outcomes = world.submit(*(world.charge(f"run-{number}", run=SMALL) for number in range(16)))
    assert {one.code.word for one in outcomes} == {"pending"}
    assert commits(world) - before == 1
