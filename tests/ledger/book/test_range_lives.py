"""What happens to a run over ranges happens on each of its partitions as to a run that lists them, or one on each.

Every case does the same to three runs, each on partitions of its own: one names ranges, of two datasets and two terms;
one lists its partitions; the third is one charge for each. After each case the accounts are equal, partition by
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.facts import GLOBAL
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import contract, dataset, dense_plan, policy
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, HOUR_MS, LOG, MERGED, SRO, CleanRoom
from tests.factories.statements import state_now
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import words

RANGE, LIST, SINGLE = WAYS = ("range", "list", "single")
DATASETS: Final = ("digits", "scans")
PLACES: Final = (*(("digits", week) for week in range(3)), *(("scans", week) for week in (3, 4)))
STEPS: Final = 40
PLAN: Final = dense_plan(STEPS, noise="40", probability="0.01")
WIDE: Final = dense_plan(200, noise="4", probability="0.1")
"""A run of which a few fit."""


def ref(way: str, place: tuple[str, int]) -> str:
    """A partition of a way."""
    return f"{HOSPITAL}/{place[0]}/{way}-{place[1]}"


def founded(world: StoredWorld) -> None:
    """Two datasets; the second partition of each way has another budget; steps that are not taken return."""
    both: list[c.Json] = [{"dataset": one, "provider": HOSPITAL} for one in DATASETS]
    agreed = [contract(bank, starts=world.begun, datasets=both) for bank in (BANK_A, BANK_B)]
    limits = {"run": {"epsilon_max": "8"}, "lineage": {"epsilon_max": "6"}}
    stated = {"alerts": ["0.1", "0.5"], "refund": "stated", **limits}
    governing = policy(world.begun) | stated
    world.contracts = {one["tdc"]: c.digest(c.dump(one)) for one in agreed}
    *before, first, second = world.founding_with(partitions={}, contracts=agreed, governing=governing)
    scans = world.document("dataset", dataset(name="scans"), "dataset-scans", HOSPITAL, HOSPITAL)
    opened = [
        world.partition(f"{way}-{week}", dataset=name, **({"epsilon": "5"} if week == 1 else {}))
        for way in WAYS
        for name, week in PLACES
    ]
    world.found(*before, scans, first, second)
    world.found(*opened)


@dataclass
class Runs:
    """Runs that are charged in each of the three ways.

    Attributes:
        charged: by name, the ids of each way's charges.
    """

    world: StoredWorld
    charged: dict[str, dict[str, list[str]]]

    def charge(self, name: str, bank: str = BANK_A, run: c.Object = PLAN, **changes: Any) -> dict[str, list[Outcome]]:  # noqa: ANN401
        """Charge a run in each way."""
        ends = {one: [week for found, week in PLACES if found == one] for one in DATASETS}
        ranges: list[c.Json] = [
            {"dataset": f"{HOSPITAL}/{one}", "first": f"range-{weeks[0]}", "last": f"range-{weeks[-1]}"}
            for one, weeks in ends.items()
        ]
        on: dict[str, list[dict[str, Any]]] = {
            RANGE: [{"partitions": (), "ranges": ranges}],
            LIST: [{"partitions": tuple(ref(LIST, place) for place in PLACES)}],
            SINGLE: [{"partitions": (ref(SINGLE, place),)} for place in PLACES],
        }
        names = {way: [f"{name}-{way}-{at}" for at in range(len(sent))] for way, sent in on.items()}
        self.charged[name] = names
        return {
            way: self.world.submit(
                *(
                    self.world.charge(one, bank, run, **where, **changes)
                    for one, where in zip(names[way], sent, strict=True)
                )
            )
            for way, sent in on.items()
        }

    def begin(self, name: str, bank: str = BANK_A, run: c.Object = PLAN, **changes: Any) -> None:  # noqa: ANN401
        """Charge a run in each way, and release its keys."""
        done = self.charge(name, bank, run, **changes)
        assert {one.code.word for outcomes in done.values() for one in outcomes} == {"pending"}, done
        released = self.world.submit(*(self.world.release(one, run, bank) for one in self.each(name)))
        assert words(released) == ["permitted"] * (2 + len(PLACES)), released

    def each(self, name: str) -> Iterator[str]:
        """The ids of the charges, of every way."""
        for ids in self.charged[name].values():
            yield from ids

    def lease(self, name: str, span: tuple[int, int], taken: int) -> None:
        """Lease a span of steps, and say how many are taken."""
        first, last = span
        for one in self.each(name):
            body: c.Object = {"charge": one, "first": first, "generation": 1, "last": last, "state": "ab" * 32}
            body |= {"output": "cd" * 32, "taken": taken}
            name = "lease-" + c.digest(f"{one} {first}".encode())
            done = self.world.send(BANK_A, "step_lease", body, name, CleanRoom(one).signer)
            assert done.code.word == "permitted", done

    def post(self, name: str, steps: int, bank: str = BANK_A) -> None:
        """Post so many steps."""
        for one in self.each(name):
            body: dict[str, Any] = {"charge": one, "steps": steps}
            with self.world.read() as facts:
                leases = facts.charges[one].leases
            if leases is not None:
                body |= {"chain": leases.chain, "generation": leases.generation, "lease": leases.newest}
            done = self.world.send(bank, "post", body, f"post-{one}", CleanRoom(one).signer)
            assert done.code.word == "posted", done

    def void(self, name: str, bank: str = BANK_A) -> None:
        """Give a run up."""
        assert set(words(self.world.submit(*(self.world.void(one, bank) for one in self.each(name))))) == {"voided"}

    def accounts(self, way: str) -> dict[tuple[str, int, str], object]:
        """Every account of a way."""
        with self.world.read() as facts:
            holders = [GLOBAL, *(f"lineage:{node}" for node in sorted(facts.nodes))]
            found = {(*at, one): facts.accounts.get((ref(way, at), one)) for at in PLACES for one in holders}
            return {at: (one.posted, one.pending) for at, one in found.items() if one is not None}


def alerts_of(world: StoredWorld, outcomes: list[Outcome], charges: list[str]) -> set[tuple[str, str, str]]:
    """Each alert as (holder, partition without its way, share)."""
    found = set()
    for outcome, charge in zip(outcomes, charges, strict=True):
        with world.read() as facts:
            partitions = facts.charges[charge].partitions
        reported: Any = outcome.body
        for one in reported.get("alerts", []):
            at = [first + k for first, many in one.get("places", []) for k in range(many)]
            for name in [partitions[k] for k in at] or [one["partition"]]:
                stem, _, last = name.rpartition("/")
                found.add((one["holder"], f"{stem}/{last.partition('-')[2]}", one["share"]))
    return found


def leased(runs: Runs) -> None:
    """Leased steps that were not taken return."""
    runs.begin("refund", step_leases=True)
    runs.lease("refund", (1, 10), 0)
    runs.lease("refund", (11, 20), 7)
    runs.post("refund", 12)


def voided(runs: Runs) -> None:
    """A run that is given up."""
    runs.charge("void")
    runs.void("void")


def lapsed(runs: Runs) -> None:
    """One lapses with leases, one without, and one whose keys were never released."""
    runs.begin("late", step_leases=True)
    runs.lease("late", (1, 10), 0)
    runs.begin("whole")
    runs.charge("unreleased")
    runs.world.clock.now += HOUR_MS + 1
    states = {runs.world.lapse(one) for one in (*runs.each("late"), *runs.each("whole"))}
    assert states == {"posted"}
    assert {runs.world.lapse(one) for one in runs.each("unreleased")} == {"voided"}


def alerted(runs: Runs) -> None:
    """The same shares are crossed on the same partitions; then no way has room, and nothing of a range is charged."""
    crossed = 0
    for number in count():
        done = runs.charge(f"wide-{number}", BANK_B, WIDE)
        reported = {way: set(words(outcomes)) for way, outcomes in done.items()}
        if reported[RANGE] != {"pending"}:
            break
        names = runs.charged[f"wide-{number}"]
        alerts = [alerts_of(runs.world, done[way], names[way]) for way in WAYS]
        assert alerts[0] == alerts[1] == alerts[2], number
        crossed += len(alerts[0])
    assert crossed
    assert (reported[RANGE], reported[LIST]) == ({"budget_exhausted"}, {"budget_exhausted"})
    assert f"no room on 1 of 5 partitions: {ref(RANGE, PLACES[1])}" in done[RANGE][0].detail
    # All is taken back, the single charges that found room included.
    for earlier in range(number):
        runs.void(f"wide-{earlier}", BANK_B)
    for one, outcome in zip(runs.charged[f"wide-{number}"][SINGLE], done[SINGLE], strict=True):
        if outcome.code.word == "pending":
            assert words(runs.world.submit(runs.world.void(one, BANK_B))) == ["voided"]


def merged(runs: Runs) -> None:
    """Two banks become one lineage while runs of both are pending; they are settled afterwards."""
    runs.begin("of-a")
    runs.begin("of-b", BANK_B)
    assert words(runs.world.submit(runs.world.merger())) == ["permitted"]
    runs.post("of-a", 3)
    runs.post("of-b", 5, BANK_B)
    runs.charge("of-both", MERGED, contract=runs.world.contracts[BANK_A])


def capped(runs: Runs) -> None:
    """A coalition's cap, which all ways meet at the same run."""
    body: c.Object = {"epsilon": "0.5", "members": [BANK_A, HOSPITAL]}
    assert runs.world.send(SRO, "coalition", body, "coalition").code.word == "permitted"
    reported = []
    for number in range(40):
        done = runs.charge(f"capped-{number}", MERGED, contract=runs.world.contracts[BANK_A])
        reported.append([set(words(done[way])) for way in WAYS])
        if reported[-1] != [{"pending"}] * 3:
            break
    assert reported[-1] == [{"budget_exhausted"}] * 3, reported[-1]
    assert "an account of a coalition has no room" in done[RANGE][0].detail


CASES: Final[tuple[Callable[[Runs], None], ...]] = (leased, voided, lapsed, alerted, merged, capped)


def test_a_range_lives_as_its_partitions_do(tmp_path: Path, engine: str) -> None:
    """After each case every account is the same in all ways; then replay, the stored rows and a new opening agree."""
    with open_world(tmp_path, engine, founded=False) as world:
        founded(world)
        runs = Runs(world, {})
        for case in CASES:
            case(runs)
            accounts = [runs.accounts(way) for way in WAYS]
            assert accounts[0], case.__name__
            assert accounts[0] == accounts[1] == accounts[2], case.__name__
            state_now(world.book)
        world.reopen()
        assert runs.accounts(RANGE) == accounts[0]
        report = verify_book(world.url, LOG, no_step, gate=gate)
        assert (report.entries, report.decided, report.judged) == (world.size, True, True)
