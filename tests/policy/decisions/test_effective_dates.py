"""The order of effective dates: what was in force is not dated away, and what is only announced holds nothing up."""

from pathlib import Path

from ledger.audit.replay import verify_book
from policy.checks.field_readers import format_time
from policy.decisions.documents import SUPERSEDED_SINCE_MS
from policy.decisions.documents_in_force import binding
from policy.decisions.gate import gate
from tests.factories.documents import PARTITION, policy
from tests.factories.people import DAY_MS, HOUR_MS, LOG, SRO
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import faults, publish


def in_force(world: StoredWorld) -> tuple[int, str]:
    """The Level of the open partition, and the cap on its lineages."""
    with world.book.read() as facts:
        found = binding(facts, facts.partitions[PARTITION], world.clock.now)
    assert found is not None
    return found.level, str(found.lineage_epsilon_max)


def test_a_level_that_was_in_force_stays_for_open_partitions(tmp_path: Path) -> None:
    """A third version with the date of the second is refused; one with a later date lowers nothing that is open."""
    with open_world(tmp_path) as world:
        world.clock.now += HOUR_MS
        date = format_time(world.clock.now)
        publish(world, 2, level=2, model_release=False, lineage={"epsilon_max": "1"})
        world.clock.now += 3 * HOUR_MS
        assert in_force(world) == (2, "1")
        dated = {**policy(), "effective": date, "version": 3}
        (refused,) = world.submit(world.document("policy", dated, "policy-3-dated-back", SRO, SRO))
        assert faults(refused) == {"effective_unordered"}
        publish(world, 3)
        assert in_force(world) == (2, "1")
        verify_book(world.url, LOG, no_step, gate=gate)


def test_an_announced_version_holds_up_no_other(tmp_path: Path) -> None:
    """One that is in force at once, as after a key was stolen, replaces what was announced for later."""
    with open_world(tmp_path) as world:
        world.clock.now = SUPERSEDED_SINCE_MS - 2 * HOUR_MS
        publish(world, 2, effective=format_time(world.clock.now + 60 * DAY_MS), lineage={"epsilon_max": "3"})
        urgent = {**policy(), "effective": format_time(world.clock.now), "version": 3, "lineage": {"epsilon_max": "2"}}
        (refused,) = world.submit(world.document("policy", urgent, "policy-3-too-early", SRO, SRO))
        assert faults(refused) == {"effective_unordered"}
        world.clock.now = SUPERSEDED_SINCE_MS
        publish(world, 3, lineage={"epsilon_max": "2"})
        assert in_force(world)[1] == "2"
        world.clock.now += 61 * DAY_MS
        assert in_force(world)[1] == "2"
        # Still not before what is in force.
        dated = {**policy(), "effective": format_time(SUPERSEDED_SINCE_MS - HOUR_MS), "version": 4}
        (early,) = world.submit(world.document("policy", dated, "policy-4-dated-back", SRO, SRO))
        assert "effective_unordered" in faults(early)
        verify_book(world.url, LOG, no_step, gate=gate)
