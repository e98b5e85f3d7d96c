"""Account proofs where runs name ranges: the entries that opened the slices say which of them a run is on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from ledger.book.state.account_proof import AccountProof, account_proof
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL
from ledger.verifier import Balance, VerificationError, from_base64
from ledger.wire import canonical_json as c
from tests.factories.documents import plan
from tests.factories.people import HOSPITAL
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.governed import words
from tests.ledger.book.state.test_account_proof import EVERY, state_anew, verified

DIGITS: Final = f"{HOSPITAL}/digits"
OPENED: Final[dict[str, c.Object]] = {f"w{week}": {"epsilon": "5"} if week in {1, 3} else {} for week in range(7)}


def between(first: int, last: int) -> list[c.Json]:
    """Weeks of the hospital's digits."""
    return [{"dataset": DIGITS, "first": f"w{first}", "last": f"w{last}"}]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """Runs before and after a statement, over slices of one budget and of two; the old ones are settled after it."""
    with open_world(tmp_path_factory.mktemp("ranges"), founded=False) as world:
        world.found(*world.founding_with(partitions=OPENED))

        def over(name: str, *listed: int, ranges: list[c.Json]) -> None:
            refs = tuple(f"{DIGITS}/w{week}" for week in listed)
            (done,) = world.submit(world.charge(name, run=plan(), partitions=refs, ranges=ranges))
            assert done.code.word == "pending", done

        over("old", ranges=between(0, 4))
        over("old-alike", ranges=between(4, 6))
        world.book.close()
        world.book = world.open(statements=True)
        state_anew(world)
        over("new", 5, ranges=[*between(0, 1), *between(2, 3)])
        over("alike", ranges=between(4, 6))
        over("beside", 2, 5, ranges=between(4, 4))
        settled = [world.release("old"), world.settle("old", 7), world.void("old-alike")]
        assert words(world.submit(*settled)) == ["permitted", "posted", "voided"]
        yield world


def proof_of(world: StoredWorld, week: int, sees: Callable[[Entry], bool] = EVERY) -> AccountProof:
    """Everyone's account of a week."""
    with world.book.read() as facts:
        stated = world.book.stated_tree(facts.size)
        assert stated is not None
        return account_proof(facts, stated, f"{DIGITS}/w{week}", GLOBAL, sees)


@pytest.mark.parametrize("week", range(7))
def test_the_balance_of_each_slice_is_proven(world: StoredWorld, week: int) -> None:
    """Each by the price of its own group."""
    with world.book.read() as facts:
        account = facts.accounts[f"{DIGITS}/w{week}", GLOBAL]
    found = verified(proof_of(world, week))
    assert found.balance == Balance(*account.posted, *account.pending)
    assert (found.hidden, found.assumed) == (0, 0)
    assert found.since == {0: 2, 1: 2, 2: 3, 3: 2, 4: 4, 5: 4, 6: 2}[week]


def test_who_may_not_see_the_openings_is_told_so(world: StoredWorld) -> None:
    """Of one price, that nothing shows that the slice is in the range; of several, the run is not shown at all."""
    unseen: Callable[[Entry], bool] = lambda entry: entry.kind != "partition"  # noqa: E731 - who sees runs alone
    alike, other = (verified(proof_of(world, week, unseen)) for week in (4, 1))
    assert (alike.since, alike.hidden, alike.assumed) == (3, 1, 3)
    assert (other.since, other.hidden, other.assumed) == (0, 2, 0)


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "an opening less": lambda proof: proof["opened"].pop(2),
    "an opening twice": lambda proof: proof["opened"].append(proof["opened"][0]),
    "an entry that opens nothing": lambda proof: proof["opened"].append(proof["statement"]),
    "another slice's": lambda proof: proof.update(partition=f"{DIGITS}/w1"),
    "no openings": lambda proof: proof["opened"].clear(),
}


@pytest.mark.parametrize("lie", LIES)
def test_openings_that_are_changed_prove_nothing(world: StoredWorld, lie: str) -> None:
    """A slice left out would move all after it, and another price would be theirs."""
    proof = copy.deepcopy(proof_of(world, 3).to_json())
    assert verified(proof).assumed == 0
    LIES[lie](proof)
    with pytest.raises(VerificationError):
        verified(proof)


def test_a_run_beside_the_slice_is_not_added(world: StoredWorld) -> None:
    """A service that shows a run over other slices is refused, where the openings are there."""
    proof: Any = proof_of(world, 2).to_json()
    others: Any = proof_of(world, 4).to_json()
    opened = {one["entry"]: one for one in (*proof["opened"], *others["opened"])}
    proof["opened"] = [*opened.values()]
    (alike,) = [one for one in others["since"] if b'"id":"alike"' in from_base64(one["entry"], "")]
    proof["since"] = [alike]
    with pytest.raises(VerificationError, match="has no price on"):
        verified(proof)
