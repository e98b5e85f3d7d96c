"""What people do who govern a book: new versions of the policy, runs from key to model, openings, decrees."""

from __future__ import annotations

from typing import Any, Final

from ledger.book.book import Outcome
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from tests.factories.documents import NONCE, contract, policy
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.stored import StoredWorld

MODEL: Final = "ab" * 32


def publish(world: StoredWorld, version: int, **changes: Any) -> None:  # noqa: ANN401 - any field of a policy
    """Another version of the policy, in force at once; None takes a field away."""
    whole = {**policy(), "version": version, "effective": format_time(world.clock.now), **changes}
    stated = {name: value for name, value in whole.items() if value is not None}
    (done,) = world.submit(world.document("policy", stated, f"policy-{version}", SRO, SRO))
    assert done.code.word == "permitted", done


def words(outcomes: list[Outcome]) -> list[str]:
    """The word of each."""
    return [one.code.word for one in outcomes]


def faults(outcome: Outcome) -> set[str]:
    """The codes of the checks that failed."""
    checks: Any = outcome.body.get("checks", [])
    return {check["code"] for check in checks if not check["passed"]}


def admitted(world: StoredWorld, bank: str, most: int, partition: str) -> int:
    """How many runs a bank gets, of so many asked for at once; the others find no room."""
    requested = [world.charge(f"{bank[8:14]}-{world.size}-{n}", bank, partitions=(partition,)) for n in range(most)]
    done = words(world.submit(*requested))
    assert set(done) <= {"pending", "budget_exhausted"}, done
    return done.count("pending")


def run(world: StoredWorld, charge: str, partition: str, steps: int = 100) -> None:
    """A run of bank A's from charge to post."""
    done = world.submit(world.charge(charge, partitions=(partition,)))
    done += world.submit(world.release(charge))
    done += world.submit(world.settle(charge, steps))
    assert words(done) == ["pending", "permitted", "posted"], done


def announce(world: StoredWorld, charge: str) -> Outcome:
    """The clean room tells that the model is to leave."""
    body: c.Object = {"charge": charge, "model": MODEL}
    return world.send(BANK_A, "release_notice", body, f"notice-{world.size}", CleanRoom(charge).signer)


def leave(world: StoredWorld, charge: str, **extra: str) -> Outcome:
    """The clean room asks for the model's release."""
    body: c.Object = {"charge": charge, "model": MODEL, **extra}
    return world.send(BANK_A, "model_release", body, f"model-{world.size}", CleanRoom(charge).signer)


def opening(world: StoredWorld, charge: str, room: str, bank: str = BANK_A) -> Outcome:
    """A bank opens the sealed model of a charge in a clean room of its own."""
    inside = CleanRoom(room)
    body: c.Object = {
        "charge": charge,
        "clean_room": inside.to_json(),
        "evidence": world.evidence(charge, inside),
        "model": MODEL,
        "nonce": NONCE,
    }
    return world.send(bank, "model_opening", body, f"opening-{world.size}")


def revoke(world: StoredWorld, actor: str = HOSPITAL, bank: str = BANK_A) -> Outcome:
    """A party ends a contract."""
    return world.send(actor, "revocation", {"contract": world.contracts[bank]}, f"revocation-{world.size}")


def decree(world: StoredWorld, holder: str, partition: str, actor: str = SRO) -> Outcome:
    """The SRO lets an account begin anew."""
    body: c.Object = {"holder": holder, "partition": partition, "reason": "the runs were of synthetic records"}
    return world.send(actor, "decree", body, f"decree-{world.size}")


def amended(bank: str = BANK_A, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field of a contract
    """The second version of a contract."""
    return {**contract(bank), "version": 2, **changes}
