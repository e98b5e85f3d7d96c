"""How much one run over ranges may name: partitions, terms, ranges, and the bytes of its entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.commands.entry import ENTRY_BYTES_MAX
from ledger.domain.partition_ranges import PARTITIONS_MAX, RANGES_MAX
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import SMALL, contract, dataset, policy
from tests.factories.people import BANK_A, HOSPITAL, LOG
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import publish, words

LONG: Final = "l" * 128
TERMS: Final = 33
UNITS: Final = {"people": {"unit": "user"}}
Range = tuple[str, str, str]


def over(world: StoredWorld, name: str, *ranges: Range, listed: tuple[str, ...] = ()) -> tuple[str, str]:
    """A charge of a small run over ranges, each (dataset, first, last), and what it lists; its outcome."""
    named: list[c.Json] = [
        {"dataset": f"{HOSPITAL}/{dataset}", "first": first, "last": last} for dataset, first, last in ranges
    ]
    refs = tuple(f"{HOSPITAL}/{one}" for one in listed)
    (done,) = world.submit(world.charge(name, run=SMALL, partitions=refs, ranges=named))
    return done.code.word, done.detail


def founded(world: StoredWorld, *names: str) -> None:
    """Datasets of these names, without a partition; the first is of records."""
    both: list[c.Json] = [{"dataset": one, "provider": HOSPITAL} for one in names]
    agreed = [contract(BANK_A, starts=world.begun, datasets=both)]
    world.contracts = {BANK_A: c.digest(c.dump(agreed[0]))}
    governing = policy(world.begun) | {"run": {"epsilon_max": "8"}}
    every = [*world.founding_with(partitions={}, contracts=agreed, governing=governing)]
    documents = [
        world.document("dataset", dataset(name=one) | UNITS.get(one, {}), f"dataset-{place}", HOSPITAL, HOSPITAL)
        for place, one in enumerate(names)
    ]
    world.found(*every[:-2], *documents, every[-1])


def test_terms_and_units_of_one_run(tmp_path: Path) -> None:
    """32 different terms under the longest names fit into an entry; more, and two units, are refused by name."""
    with open_world(tmp_path, founded=False) as world:
        founded(world, LONG, "people")
        names = [f"{place:0>100}" for place in range(TERMS)]
        world.found(
            *(
                world.partition(name, dataset=LONG, data_key=f"long-{place}", epsilon=f"5.{place + 1:0>2}1")
                for place, name in enumerate(names)
            )
        )
        publish(world, 2, unit="user", run={"epsilon_max": "8"})
        world.found(world.partition("users", dataset="people", unit="user", unit_records_max=2))
        publish(world, 3, run={"epsilon_max": "8"})
        wrong: dict[str, Any] = {
            "terms": ([(LONG, names[0], names[-1])], (), f"{TERMS} different terms are more than the 32"),
            "units": ([(LONG, names[0], names[1]), ("people", "users", "users")], (), "cannot span both"),
            "units-listed": ([(LONG, names[0], names[1])], ("people/users",), "cannot span both"),
        }
        for name, (ranges, listed, rule) in wrong.items():
            word, reported = over(world, name, *ranges, listed=listed)
            assert (word, rule in reported) == ("malformed", True), reported
        assert over(world, "most", (LONG, names[0], names[-2])) == ("pending", "")
        with world.book.read() as facts:
            assert 30_000 < len(facts.entry(facts.size - 1)) <= ENTRY_BYTES_MAX
            (charge,) = facts.charges.values()
            assert charge.partitions == tuple(f"{HOSPITAL}/{LONG}/{name}" for name in names[:-1])


@pytest.mark.soak
def test_partitions_of_one_run(tmp_path: Path) -> None:
    """1,024 in up to 64 ranges, listed ones included; all of one run post, and replay agrees."""
    with open_world(tmp_path, founded=False) as world:
        founded(world, "digits")
        slices = [f"s{place}" for place in range(PARTITIONS_MAX + 1)]
        for start in range(0, len(slices), 64):
            world.found(*map(world.partition, slices[start : start + 64]))
        single = [("digits", one, one) for one in slices[: 2 * RANGES_MAX + 2 : 2]]
        wrong: dict[str, Any] = {
            "one-more": ([("digits", "s0", f"s{PARTITIONS_MAX}")], (), "more than 1024 partitions"),
            "one-listed": ([("digits", "s1", f"s{PARTITIONS_MAX}")], ("digits/s0",), "more than 1024 partitions"),
            "ranges": (single, (), "64"),
        }
        for name, (ranges, listed, rule) in wrong.items():
            word, reported = over(world, name, *ranges, listed=listed)
            assert (word, rule in reported) == ("malformed", True), reported
        assert over(world, "whole", ("digits", "s0", f"s{PARTITIONS_MAX - 1}")) == ("pending", "")
        listed = tuple(f"digits/s{place}" for place in range(16))
        assert over(world, "listed", ("digits", "s16", f"s{PARTITIONS_MAX - 1}"), listed=listed) == ("pending", "")
        assert over(world, "scattered", *single[:RANGES_MAX]) == ("pending", "")
        settled = [world.release("whole", SMALL), world.settle("whole", 1), world.void("listed")]
        assert words(world.submit(*settled)) == ["permitted", "posted", "voided"]
        with world.book.read() as facts:
            held = [facts.accounts[f"{HOSPITAL}/digits/{one}", "global"] for one in slices[:-1]]
        assert len({one.posted for one in held}) == 1
        assert len({one.pending for one in held}) == 2
        assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size
