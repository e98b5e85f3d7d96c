"""Every rule through the book: opened, charged, settled in part, and replayed by somebody who has only the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.audit.replay import verify_book
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from policy.documents import MECHANISMS
from tests.factories.documents import NOW, plan, policy
from tests.factories.people import HOSPITAL, LOG, SRO
from tests.factories.stored import StoredWorld, no_step, open_world, rows
from tests.ledger.accounting.other_machine import other_machine

LAPLACE: c.Object = {"kind": "laplace", "noise_multiplier": "20", "v": 1}
BOX: c.Object = {
    "delta": "0.0000001", "epsilon": "0.1", "kind": "black_box", "relation": "REPLACE_SPECIAL", "v": 1
}  # fmt: skip
ROUNDS: c.Object = {
    "count": 5,
    "kind": "self_composed",
    "mechanism": {"kind": "composed", "mechanisms": [LAPLACE, BOX], "v": 1},
    "v": 1,
}
STEPS = plan(40, "4")
PARTITIONS: dict[str, dict[str, c.Json]] = {
    "reference": {"load": STEPS, "rule": "reference"},
    "gaussian": {"rule": "gaussian"},
    "catalogue": {"load": STEPS, "prices": [2], "rule": "catalogue", "slack": "0.000002"},
    "slack": {"slack": "0.000002"},
    "pure": {"delta": "0", "epsilon": "3"},
}
RUNS: list[tuple[str, c.Object, int]] = [
    ("reference", STEPS, 40),
    ("gaussian", STEPS, 40),
    ("slack", STEPS, 40),
    ("catalogue", STEPS, 40),
    ("gaussian", {"kind": "mechanism", "mechanism": ROUNDS, "v": 1}, 5),
    ("slack", {"kind": "mechanism", "mechanism": ROUNDS, "v": 1}, 5),
    ("catalogue", {"kind": "mechanism", "mechanism": ROUNDS, "v": 1}, 5),
    ("pure", {"kind": "mechanism", "mechanism": {**LAPLACE}, "v": 1}, 1),
]


@pytest.fixture
def world(tmp_path: Path, engine: str) -> Iterator[StoredWorld]:
    """A book whose policy permits every rule and mechanism, with a partition of each kind."""
    with open_world(tmp_path, engine) as made:
        wider = {
            **policy(),
            "effective": format_time(NOW),
            "mechanisms": [*MECHANISMS],
            "rules": [*RULE_NAMES],
            "version": 2,
        }
        openings = [made.partition(name, **changes) for name, changes in PARTITIONS.items()]
        outcomes = made.submit(made.document("policy", wider, "policy-2", SRO, SRO), *openings)
        assert {one.code.word for one in outcomes} == {"permitted"}, outcomes
        yield made


def ref(name: str) -> str:
    """A partition of the hospital's digits."""
    return f"{HOSPITAL}/digits/{name}"


def live(world: StoredWorld) -> None:
    """Of each run one is settled in part, one whole, one not at all."""
    for number, (where, run, steps) in enumerate(RUNS):
        names = [f"run-{number}-{place}" for place in range(3)]
        outcomes = world.submit(*(world.charge(name, run=run, partitions=(ref(where),)) for name in names))
        assert [one.code.word for one in outcomes] == ["pending"] * 3, (where, outcomes)
        settled = world.submit(world.settle(names[0], steps // 2), world.settle(names[1], steps), world.void(names[2]))
        assert [one.code.word for one in settled] == ["posted", "posted", "voided"]


def test_a_book_with_every_rule_is_replayed(world: StoredWorld) -> None:
    """Charged, settled in part or whole or not at all; reopened, and verified from the entries alone."""
    live(world)
    world.reopen()
    found = verify_book(world.url, LOG, no_step)
    assert found.charges == 3 * len(RUNS)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_honest_book_verifies_where_floats_end_otherwise(world: StoredWorld) -> None:
    """Of every rule, the policy asked again; though each search that was made for it ends elsewhere there."""
    live(world)
    world.book.close()
    for seed in (1, 2):
        with other_machine(seed):
            found = verify_book(world.url, LOG, no_step, gate=gate)
        assert (found.charges, found.judged) == (3 * len(RUNS), True)


def test_a_charge_keeps_its_pipeline_and_its_group(world: StoredWorld) -> None:
    """Through the rows and back, and through a replay that prices the group anew."""
    where, digest = (ref("slack"),), "5" * 64
    charge = world.charge("run", run=plan(40, "16"), partitions=where, pipeline=digest, unit_records_max=2)
    assert [one.code.word for one in world.submit(charge)] == ["pending"]
    world.reopen()
    with world.book.read() as facts:
        assert facts.charges["run"].pipeline == digest
    assert verify_book(world.url, LOG, no_step).charges == 1


def steps(**changes: c.Json) -> c.Object:
    """A kind of sampled Gaussian steps."""
    one: c.Object = {"kind": "poisson_gaussian", "noise_multiplier": "4", "probability": "0.0625", "steps": 40, "v": 1}
    return {**one, **changes}


def load(*mechanisms: c.Object) -> c.Object:
    """A plan of these, one after another."""
    return {"kind": "mechanism", "mechanism": {"kind": "composed", "mechanisms": [*mechanisms], "v": 1}, "v": 1}


FEW: c.Object = {"kind": "gaussian", "noise_multiplier": "3", "v": 1}
NOT_A_CATALOGUE: dict[str, tuple[dict[str, c.Json], str, str]] = {
    "prices that admit nothing of one kind": (
        {"load": load(FEW, steps()), "prices": [1, 64]}, "body.prices[1]", "no room for one block: it costs 64 ticks"
    ),
    "a price of no tick": ({"prices": [0]}, "body.prices[0]", "between 1 and 64"),
    "a price too few": ({"load": load(steps(), FEW), "prices": [1]}, "body.prices", "one for each kind of step"),
    "nine prices": ({"prices": [1] * 9}, "body.prices", "8"),
    "nine kinds of steps": (
        {"load": load(*(steps(noise_multiplier=str(n)) for n in range(4, 13)))}, "body.load", "1 to 8 kinds"
    ),
    "a type out of range": (
        {"load": load(steps(probability="2"))}, "body.load.mechanism.mechanisms[0].probability", "1"
    ),
    "a type without noise": (
        {"load": load(steps(noise_multiplier="0"))}, "body.load.mechanism.mechanisms[0].noise_multiplier", "0"
    ),
    "a type of which no step fits": (
        {"load": load(steps(noise_multiplier="0.02", probability="1"))}, "body.epsilon", "no room for one step"
    ),
    "an unlisted kind in the mix": ({"load": load(steps(), LAPLACE)}, "body.load", "holds a step of laplace"),
    "an unknown kind in the mix": (
        {"load": load(steps(), {"kind": "magic", "v": 1})}, "body.load.mechanism.mechanisms[1].kind", "magic"
    ),
    "a δ that rounding would decide": ({"delta": "0.0000005"}, "body.delta", "at least 1e-6 beyond the slack"),
    "a slack that leaves too little δ": ({"slack": "0.0000095"}, "body.delta", "at least 1e-6 beyond the slack"),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite"])
def test_what_a_catalogue_cannot_open_with_leaves_nothing(world: StoredWorld) -> None:
    """Field and rule are named, and every table is as before."""
    before = rows(world.url)
    for name, (changes, field, named) in NOT_A_CATALOGUE.items():
        requested: dict[str, c.Json] = {"load": STEPS, "rule": "catalogue", **changes}
        (outcome,) = world.submit(world.partition("new", **requested))
        assert (outcome.code.word, outcome.index, outcome.field) == ("malformed", None, field), (name, outcome)
        assert named in outcome.detail, name
    assert rows(world.url) == before


def test_what_no_rule_prices_is_recorded_as_refused(world: StoredWorld) -> None:
    """By name; and what the policy does not permit is told as such."""
    laplace: c.Object = {"kind": "mechanism", "mechanism": LAPLACE, "v": 1}
    (outcome,) = world.submit(world.charge("laplace", run=laplace, partitions=(ref("reference"),)))
    assert outcome.code.word == "not_priced"
    assert "laplace under REPLACE_SPECIAL has no proven price in the rule reference" in outcome.detail
    assert outcome.index is not None
    narrow = {**policy(), "mechanisms": ["poisson_gaussian"], "rules": [*RULE_NAMES], "version": 3}
    boxed: c.Object = {"kind": "mechanism", "mechanism": ROUNDS, "v": 1}
    outcomes = world.submit(
        world.document("policy", narrow, "policy-3", SRO, SRO),
        world.charge("boxed", run=boxed, partitions=(ref("slack"),)),
    )
    assert [one.code.word for one in outcomes] == ["permitted", "policy_denied"]
    assert "laplace" in outcomes[1].detail
    assert "black_box" in outcomes[1].detail
    verify_book(world.url, LOG, no_step)
