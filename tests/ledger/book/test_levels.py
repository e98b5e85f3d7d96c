"""Each Level from policy to model, through the book and the real gate, and verified by replay at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ledger.audit.replay import verify_book
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL
from ledger.filters import read_rule
from ledger.wire import canonical_json as c
from policy.documents.partition_commitments import MAGIC
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, BANK_B, DAY_MS, HOSPITAL, HOUR_MS, LOG
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import MODEL, admitted, announce, faults, leave, opening, publish, run, words

FIT: Final = 12
"""Runs of the default plan that the partition's whole budget holds; :func:`tests.factories.stored.plan` says so."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A world under Level 1, verified when the test is over."""
    with open_world(tmp_path) as found:
        yield found
        assert verify_book(found.url, LOG, no_step).entries == found.size


def share(world: StoredWorld, partition: str) -> float:
    """How much of a partition's capacity everyone together has used."""
    with world.book.read() as facts:
        found = facts.partitions[partition]
        rule = read_rule(found.terms)
        return float(rule.share(facts.accounts[partition, GLOBAL].loss, rule.cap(found.epsilon)))


def test_level_0_caps_each_lineage_and_watches_everyone(world: StoredWorld) -> None:
    """Two banks together pass the budget, and the log says when; a model leaves, marked where the policy asks."""
    publish(world, 2, level=0, partition_age_days_max=None, alerts=["0.5", "1"], watermark=True)
    assert words(world.submit(world.partition("open"))) == ["permitted"]
    ref = f"{HOSPITAL}/digits/open"
    run(world, "first", ref)
    first, second = admitted(world, BANK_A, FIT, ref), admitted(world, BANK_B, FIT, ref)
    assert first + 1 == second < FIT < first + 1 + second
    assert share(world, ref) > 1
    reported = [alert for one in alerts(world) for alert in one if alert["holder"] == GLOBAL]
    assert [alert["share"] for alert in reported] == ["0.5", "1"]
    assert announce(world, "first").code.word == "permitted"
    assert faults(leave(world, "first")) == {"watermark_missing"}
    assert leave(world, "first", watermark="cd" * 32).code.word == "permitted"


def alerts(world: StoredWorld) -> list[list[dict[str, str]]]:
    """What each entry tells."""
    with world.book.read() as facts:
        found = [Entry.parse(facts.entry(index)).body.get("alerts", []) for index in range(facts.size)]
    return [one for one in found if isinstance(one, list) and one]  # type: ignore[misc] # JSON


def test_ten_thousand_datasets_have_levels_of_their_own(world: StoredWorld) -> None:
    """In one policy of more than half a megabyte: a sealed one's models stay, and replay reads the same."""
    rows = [{"dataset": f"scans-{n}", "level": 2, "provider": HOSPITAL} for n in range(9_999)]
    rows.append({"dataset": "digits", "level": 2, "provider": HOSPITAL})
    publish(world, 2, levels=rows)
    assert words(world.submit(world.partition("sealed"))) == ["permitted"]
    run(world, "first", f"{HOSPITAL}/digits/sealed")
    assert "level_seals_model" in faults(leave(world, "first"))


def test_level_1_caps_everyone_and_renews_with_new_records(world: StoredWorld) -> None:
    """Whoever asks, the budget holds; the partition ages, new records open the next one, old ones do not."""
    publish(world, 2, partition_age_days_max=30, notice_hours=24)
    run(world, "first", PARTITION)
    total = 1 + admitted(world, BANK_A, FIT, PARTITION) + admitted(world, BANK_B, FIT, PARTITION)
    assert total == FIT
    assert share(world, PARTITION) <= 1
    assert faults(leave(world, "first")) == {"release_not_announced"}
    assert announce(world, "first").code.word == "permitted"
    assert faults(leave(world, "first")) == {"release_too_soon"}
    world.clock.now += 24 * HOUR_MS
    assert leave(world, "first").code.word == "permitted"
    world.clock.now += 30 * DAY_MS
    (late,) = world.submit(world.charge("late"))
    assert faults(late) == {"partition_too_old"}
    assert words(world.submit(world.partition("2027-q1"))) == ["permitted"]
    assert admitted(world, BANK_A, 1, f"{HOSPITAL}/digits/2027-q1") == 1


def test_what_was_promised_of_an_open_partition_no_later_policy_takes_back(world: StoredWorld) -> None:
    """Full stays full when everyone would only be watched, or a lineage may know more; new records may."""
    most = admitted(world, BANK_A, FIT, PARTITION)
    publish(world, 2, lineage={"epsilon_max": "6"})
    assert admitted(world, BANK_A, 1, PARTITION) == 0
    assert most + admitted(world, BANK_B, FIT, PARTITION) == FIT
    sealed = {"everyone": "watched", "inference": "attested"}
    publish(world, 3, level=2, model_release=False, sealed=sealed)
    assert admitted(world, BANK_B, 1, PARTITION) == 0
    publish(world, 4, level=0, partition_age_days_max=None)
    assert admitted(world, BANK_B, 1, PARTITION) == 0
    assert words(world.submit(world.partition("later"))) == ["permitted"]
    later = f"{HOSPITAL}/digits/later"
    assert admitted(world, BANK_A, FIT, later) + admitted(world, BANK_B, FIT, later) > FIT


def test_level_1_refuses_old_records_under_a_new_name(world: StoredWorld) -> None:
    """Renewal is for new records: who is in an earlier partition, of whatever name, is in no later one."""
    publish(world, 2, commitments=True, records_min=1)
    described = {
        "deidentification": "no names",
        "domain": "health",
        "id": "strokes",
        "kind": "dataset",
        "membership": "by the month of the visit",
        "provider": HOSPITAL,
        "schema": "strokes",
        "unit": "record",
        "v": 1,
    }
    assert words(world.submit(world.document("dataset", described, "strokes", HOSPITAL, HOSPITAL))) == ["permitted"]
    held = {
        name: _committed(world, *people) for name, people in {"one": (1, 2, 3), "two": (4, 5), "old": (3, 6)}.items()
    }
    opened = [
        world.send(
            HOSPITAL, "partition", {**_OPENED, "partition": name, "data_key": name, "commitments": [held[name]]}, name
        )
        for name in ("one", "two", "old")
    ]
    assert words(opened) == ["permitted", "permitted", "policy_denied"]
    assert "1 records of" in opened[2].detail
    assert faults(opened[2]) == {"records_overlap"}


_OPENED: Final[c.Object] = {
    "dataset": "strokes",
    "delta": "0.00001",
    "epsilon": "6",
    "provider": HOSPITAL,
    "records": 2,
    "relation": "REPLACE_SPECIAL",
    "rule": "renyi",
    "unit": "record",
}


def _committed(world: StoredWorld, *people: int) -> str:
    return world.book.put_document(MAGIC + bytes(32) + b"".join(bytes([one]) * 32 for one in people))


def test_level_2_seals_the_model_and_opens_it_in_attested_rooms_alone(world: StoredWorld) -> None:
    """Raised over an open partition it binds at once: nothing leaves, and each opening is an entry of its own."""
    run(world, "first", PARTITION)
    publish(world, 2, level=2, model_release=False, sealed={"everyone": "caps", "inference": "attested"})
    assert announce(world, "first").code.word == "permitted"
    assert faults(leave(world, "first")) == {"model_not_released", "level_seals_model"}
    world.clock.now += DAY_MS
    publish(world, 3, level=0, partition_age_days_max=None)
    assert faults(leave(world, "first")) == {"level_seals_model"}
    assert words([opening(world, "first", "inside-1"), opening(world, "first", "inside-2")]) == ["permitted"] * 2
    assert opening(world, "first", "inside-2").code.word == "conflict"
    assert opening(world, "first", "inside-3", BANK_B).code.word == "not_authorised"
    with world.book.read() as facts:
        assert [one.charge for one in facts.keys.values()].count("first") == 3
        assert dict(facts.charges["first"].notices) == {MODEL: world.clock.now - DAY_MS}
    total = 1 + admitted(world, BANK_A, FIT, PARTITION) + admitted(world, BANK_B, FIT, PARTITION)
    assert total == FIT


def test_level_2_watches_everyone_where_its_policy_says_so(world: StoredWorld) -> None:
    """As the policy says: then each lineage's cap alone holds."""
    sealed = {"everyone": "watched", "inference": "attested"}
    levels = [{"dataset": "digits", "level": 2, "provider": HOSPITAL}]
    publish(world, 2, level=0, partition_age_days_max=None, levels=levels, sealed=sealed)
    assert words(world.submit(world.partition("sealed"))) == ["permitted"]
    ref = f"{HOSPITAL}/digits/sealed"
    assert admitted(world, BANK_A, FIT, ref) + admitted(world, BANK_B, FIT, ref) > FIT


def test_private_prediction_is_refused_by_name(world: StoredWorld) -> None:
    """Until it exists."""
    with pytest.raises(AssertionError, match="private_prediction is refused until it exists"):
        publish(world, 2, level=2, model_release=False, sealed={"everyone": "caps", "inference": "private_prediction"})
    with world.book.read() as facts:
        assert [one.version for one in facts.policies["health"]] == [1]
