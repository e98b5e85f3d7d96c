"""A merger through the book: one lineage that knows the union of its parents' runs."""

from __future__ import annotations

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.facts import GLOBAL, holder_of
from ledger.mechanisms.loss import Loss, loss_of
from tests.factories.documents import PARTITION, SMALL
from tests.factories.people import BANK_A, BANK_B, LOG, MERGED
from tests.factories.stored import StoredWorld, no_step


def _words(outcomes: list[Outcome]) -> list[str]:
    return [one.code.word for one in outcomes]


def _accounts(world: StoredWorld) -> dict[str, tuple[Loss, Loss]]:
    with world.book.read() as facts:
        return {holder: (one.posted, one.pending) for (_, holder), one in facts.accounts.items()}


def _runs(world: StoredWorld, *runs: tuple[str, int]) -> Loss:
    with world.book.read() as facts:
        return sum(
            (loss_of(dict(facts.charges[name].prices)[PARTITION], steps) for name, steps in runs[1:]),
            loss_of(dict(facts.charges[runs[0][0]].prices)[PARTITION], runs[0][1]),
        )


def _node(world: StoredWorld, did: str) -> str:
    with world.book.read() as facts:
        return holder_of(facts.organisations[did].node)


def test_the_merged_account_is_the_union_of_the_runs(world: StoredWorld) -> None:
    """Posted and pending, of both parents and of the body itself, each once; the parents' own stay as they were."""
    world.submit(world.charge("a-1"), world.charge("a-2"), world.charge("b-1", BANK_B))
    world.submit(world.settle("a-1", 30), world.settle("b-1", 70, BANK_B))
    a, b = _node(world, BANK_A), _node(world, BANK_B)
    before = _accounts(world)
    assert _words(world.submit(world.merger())) == ["permitted"]
    merged = _node(world, MERGED)
    assert (_node(world, BANK_A), _node(world, BANK_B)) == (merged, merged)
    after = _accounts(world)
    posted, pending = _runs(world, ("a-1", 30), ("b-1", 70)), _runs(world, ("a-2", 100))
    assert after[merged] == after[GLOBAL] == (posted, pending)
    assert {name: after[name] for name in (a, b, GLOBAL)} == before
    assert verify_book(world.url, LOG, no_step).accounts == 4


def test_a_parents_pending_run_settles_in_both(world: StoredWorld) -> None:
    """Posted after the merger it moves in the parent's account, the merged one and the global one."""
    world.submit(world.charge("a-1"), world.charge("b-1", BANK_B), world.merger())
    a, b, merged = "lineage:2", "lineage:3", _node(world, MERGED)
    assert _words(world.submit(world.settle("a-1", 10))) == ["posted"]
    accounts, zero = _accounts(world), Loss.zero(len(_runs(world, ("a-1", 1)).finite))
    ten, other = _runs(world, ("a-1", 10)), _runs(world, ("b-1", 100))
    assert accounts[a] == (ten, zero)
    assert accounts[b] == (zero, other)
    assert accounts[merged] == accounts[GLOBAL] == (ten, other)
    assert verify_book(world.url, LOG, no_step).charges == 2


def test_a_lineage_over_its_cap_is_refused_while_everyone_has_room(world: StoredWorld) -> None:
    """Five runs each fit; together they are more than a lineage may know; another bank may go on."""
    sent = [world.charge(f"{bank[13]}-{n}", bank) for bank in (BANK_A, BANK_B) for n in range(5)]
    assert set(_words(world.submit(*sent))) == {"pending"}
    assert set(_words(world.submit(world.charge("a-6"), world.void("a-6")))) == {"pending", "voided"}
    world.submit(world.merger())
    for bank in (BANK_A, BANK_B):
        (outcome,) = world.submit(world.charge(f"more-{bank[13]}", bank, SMALL))
        assert outcome.code.word == "budget_exhausted"
        assert "the account of this lineage" in outcome.detail
        assert "global" not in outcome.detail
    (merged,) = world.submit(world.charge("more-m", MERGED, SMALL, contract=world.contracts[BANK_A]))
    assert merged.code.word == "budget_exhausted"
    assert _words(world.submit(world.void("a-0"), world.void("a-1"))) == ["voided", "voided"]
    (merged,) = world.submit(world.charge("again-m", MERGED, SMALL, contract=world.contracts[BANK_A]))
    assert merged.code.word == "pending"
    assert verify_book(world.url, LOG, no_step).charges == 12


def test_one_lineage_does_not_merge_again(world: StoredWorld) -> None:
    """A second merger of the same bodies is refused by name and changes no account."""
    world.submit(world.charge("a-1"), world.merger())
    before = _accounts(world)
    again = world.command("did:web:sro.example", "merger", {"organisation": MERGED, "parents": [BANK_A]}, "again")
    (outcome,) = world.submit(again)
    assert (outcome.code.word, outcome.detail) == ("conflict", "these organisations are one lineage already")
    assert _accounts(world) == before
