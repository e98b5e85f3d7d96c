"""The ε told of an account: by the whole plan of its one run while there is one, and by the rule alone after that."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from msgspec import structs

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.book.submitted_command import Submission
from ledger.commands.runs.account_epsilon import AccountEpsilon, account_epsilon, only_run
from ledger.domain.facts import GLOBAL, holder_of
from ledger.filters import read_rule
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.wire.canonical_json import dump
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_B, SRO
from tests.factories.stored import StoredWorld
from tests.factories.world import HOLDER

PLAN = PoissonGaussian(Fraction(1, 16), Fraction(2), 100)
DELTA = Fraction(1, 100_000)


def told(world: StoredWorld, holder: str = GLOBAL) -> AccountEpsilon:
    """Of one account, the same by the rows and by the entries applied again."""
    with world.book.read() as facts:
        now, size = account_epsilon(facts, facts.accounts[PARTITION, holder]), facts.size
    with world.book.read_past(size) as past:
        assert account_epsilon(past, past.accounts[PARTITION, holder]) == now
    return now


def send(world: StoredWorld, *submissions: Submission) -> None:
    """Commands that must be accepted."""
    for one in submissions:
        (outcome,) = world.submit(one)
        assert not outcome.code.refused, outcome


def test_the_first_run_is_reported_by_its_whole_plan_until_a_second_begins(world: StoredWorld) -> None:
    """At half of δ, whatever part of it ran; voided charges have never begun; within 1.35 of its PLD at δ."""
    world.found()
    whole = reported_epsilon(PLAN, DELTA, "REPLACE_SPECIAL")
    first = AccountEpsilon(
        reported_epsilon(PLAN, DELTA / 2, "REPLACE_SPECIAL"), DELTA, "PLD of the plan of its one run"
    )
    send(world, world.charge("given-up"))
    assert told(world) == first
    send(world, world.void("given-up"), world.charge("first"))
    assert told(world) == told(world, HOLDER) == first
    assert first.epsilon is not None
    assert whole < first.epsilon <= whole * Fraction(135, 100)
    send(world, world.release("first"), world.settle("first", 40))
    stopped = told(world)
    assert stopped.epsilon is not None
    assert stopped.epsilon <= first.epsilon
    send(world, world.charge("second", BANK_B))
    later = told(world)
    assert later.bound == "renyi odometer"
    assert later.epsilon is not None
    # Each lineage knows one run; together they know two.
    assert told(world, HOLDER) == stopped
    send(world, world.void("second", BANK_B))
    assert told(world) == stopped


def test_who_gets_a_second_model_knows_of_the_first_run_too(world: StoredWorld) -> None:
    """The plan of the second run may say what the first model said: no figure of one run for its recipient."""
    world.found()
    send(world, world.charge("first"), world.charge("second", recipients=[BANK_B]))
    assert not world.send(SRO, "transfer", {"charge": "second", "recipient": BANK_B}, "transfer").code.refused
    with world.book.read() as facts:
        holder = holder_of(facts.organisations[BANK_B].node)
        assert only_run(facts, facts.partitions[PARTITION], holder) is None
    assert told(world, holder).bound == "renyi odometer"


def test_a_partition_opened_before_tells_what_it_reported(world: StoredWorld) -> None:
    """Without the field in its terms there is one odometer, the rule's own at the whole of δ."""
    world.found()
    send(world, world.charge("first"))
    with world.book.read() as facts:
        partition, account = facts.partitions[PARTITION], facts.accounts[PARTITION, GLOBAL]
        older = structs.replace(read_rule(partition.terms), odometers=None)
        assert b"odometers" not in dump(older.to_json())
        facts.partitions._known[PARTITION] = replace(partition, terms=dump(older.to_json()).decode())  # noqa: SLF001
        assert account_epsilon(facts, account) == AccountEpsilon(older.odometer(account.loss), DELTA, "renyi odometer")
