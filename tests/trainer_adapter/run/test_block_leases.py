"""Leases of one process: asked for one block ahead, waited for only when the leased steps are used up."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from client.http.problems import Refused, Unreachable
from ledger.commands.runs.step_lease import chained
from tests.trainer_adapter.live_service import PLAN
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.job.step_log import StepLog
from trainer_adapter.run.block_leases import LONGER_MAX, BlockLeases
from trainer_adapter.run.step_budget import StepBudget
from trainer_adapter.session.lease_requests import LeaseRequest, LeaseRequests

LONG_S = 60.0


class Ledger(LeaseRequests):
    """A ledger of one run, which says yes to what follows on its leases as long as its gate is open."""

    def __init__(self, leased: int = 0, answers: Exception | None = None) -> None:
        """Nothing but ``leased`` steps are leased; from the second request on it ``answers`` with an error."""
        self.wanted: list[LeaseRequest] = []
        self.leased, self.generation, self.answers = leased, 1, answers
        self.open = threading.Event()
        self.open.set()

    def lease(self, wanted: LeaseRequest) -> None:
        """Grant it, or not."""
        assert self.open.wait(LONG_S)
        self.wanted.append(wanted)
        if self.answers is not None and len(self.wanted) > 1:
            raise self.answers
        assert (wanted.first, wanted.generation) == (self.leased + 1, self.generation)
        self.leased = wanted.last

    def take_generation(self) -> tuple[int, int]:
        """The next one."""
        self.generation += 1
        return self.generation, self.leased


def _conflict(field: str) -> Refused:
    return Refused(409, {"code": "conflict", "detail": "another has gone on", "field": field})


def _sizes(ledger: Ledger) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in ledger.wanted]


def test_no_step_waits_while_the_next_lease_is_under_way(tmp_path: Path) -> None:
    """The second request hangs: the ten steps of the first lease are taken all the same, and the eleventh waits."""
    ledger = Ledger()
    leases = BlockLeases(ledger, PLAN.steps, 10, 0, resumed=False)
    with closing(StepLog.create(tmp_path / "steps", "run-1", PLAN, 10)) as log:
        budget = StepBudget(PLAN, log, leases=leases)
        assert budget.next_step() == 1
        ledger.open.clear()
        assert [budget.next_step() for _ in range(9)] == list(range(2, 11))
        assert (leases.granted, log.steps_begun()) == (10, 10)
        threading.Timer(0, ledger.open.set).start()
        assert [*budget] == list(range(11, 21))
    assert _sizes(ledger) == [(1, 10), (11, 20)]
    assert [bool(one.finished) for one in ledger.wanted] == [False, False]
    assert budget.lease == 2


def test_a_run_that_is_stopped_while_it_waits_ends_and_the_lease_counts(tmp_path: Path) -> None:
    """No answer comes and a signal does: no step is taken, and what was granted meanwhile is posted."""
    ledger, ends = Ledger(), list[str]()
    leases = BlockLeases(ledger, PLAN.steps, 10, 0, resumed=False)
    with closing(StepLog.create(tmp_path / "steps", "run-1", PLAN, 10)) as log:
        budget = StepBudget(PLAN, log, [lambda: ends[0] if ends else ""], leases)
        assert [budget.next_step() for _ in range(5)] == [1, 2, 3, 4, 5]
        ledger.open.clear()
        assert [budget.next_step() for _ in range(5)] == [6, 7, 8, 9, 10]
        threading.Timer(0.05, ends.append, ["stopped"]).start()
        assert budget.next_step() is None
    assert (budget.ended, budget.taken, leases.granted) == ("stopped", 10, 10)
    leases.settle(0)
    assert leases.granted == 10
    ledger.open.set()
    leases.settle()
    assert (leases.granted, leases.newest) == (20, ledger.wanted[-1].id)


@pytest.mark.parametrize("error", [Unreachable("no answer"), _conflict("body.charge")], ids=["lost", "refused"])
def test_a_lease_that_is_not_given_ends_the_run_when_the_leased_steps_are_used_up(error: Exception) -> None:
    """Not a step sooner, and in words."""
    leases = BlockLeases(Ledger(answers=error), PLAN.steps, 10, 0, resumed=False)
    assert [leases.reach(step, lambda: "") for step in range(1, 11)] == [""] * 10
    assert leases.reach(11, lambda: "") == f"no further steps are leased: {error}"
    leases.settle()
    assert leases.granted == 10


@pytest.mark.parametrize("field", ["body.first", "body.generation"])
def test_a_copy_that_has_gone_on_ends_this_one_before_its_next_noise(field: str) -> None:
    """Though steps are leased: what they would train cannot leave."""
    ledger = Ledger(answers=_conflict(field))
    leases = BlockLeases(ledger, PLAN.steps, 10, 0, resumed=False)
    for step in range(1, 7):
        assert leases.reach(step, lambda: "") == ""
    leases.settle()
    for _ in range(2):
        with pytest.raises(Refused, match="another has gone on"):
            leases.reach(7, lambda: "")


def test_a_lease_is_for_a_second_of_work_or_half_a_per_cent_or_a_block() -> None:
    """Two steps a second: a lease of three seconds has six, once there was time for every request; of many a 200th."""
    now, ledger = [0.0], Ledger()
    leases = BlockLeases(ledger, 1_000, 5, 3, resumed=False, clock=lambda: now[0], cpu_clock=lambda: 0.0)
    for step in range(1, 40):
        assert leases.reach(step, lambda: "") == ""
        now[0] += 0.5
    leases.settle()
    assert _sizes(ledger) == [(1, 5), (6, 21), (22, 32), (33, 38), (39, 44)]
    many = Ledger()
    assert BlockLeases(many, 100_000, 5, 0, resumed=False).reach(1, lambda: "") == ""
    assert _sizes(many)[0] == (1, 500)


class Dear(Ledger):
    """Its requests take processor time, by a clock of the test's."""

    def __init__(self, each_s: float) -> None:
        """So many seconds each."""
        super().__init__()
        self.each_s, self.worked = each_s, threading.local()

    def lease(self, wanted: LeaseRequest) -> None:
        """Grant it, after some work."""
        super().lease(wanted)
        self.worked.seconds = self.cpu_clock() + self.each_s

    def cpu_clock(self) -> float:
        """Of the thread that calls it."""
        return getattr(self.worked, "seconds", 0.0)


@pytest.mark.parametrize(
    ("each_s", "seconds"),
    [(0.0001, 1), (0.002, 2), (1.0, LONGER_MAX)],
    ids=["cheap", "half a second of work, which takes two", "at most"],
)
def test_where_requests_are_dear_leases_are_longer(each_s: float, seconds: int) -> None:
    """A hundred steps a second, of 2.5 ms of a processor each: on a loaded machine a second has a quarter of work."""
    now, ledger = [0.0], Dear(each_s)
    leases = BlockLeases(ledger, 20_000, 5, 1, resumed=False, clock=lambda: now[0], cpu_clock=ledger.cpu_clock)
    for step in range(1, 2_000):
        assert leases.reach(step, lambda: "") == ""
        leases.settle()
        now[0] += 0.01
        ledger.worked.seconds = ledger.cpu_clock() + 0.0025
    sizes = [last - first + 1 for first, last in _sizes(ledger)]
    assert abs(sizes[-1] - 100 * seconds) <= seconds


def test_a_run_that_is_resumed_goes_on_after_all_that_is_leased(tmp_path: Path) -> None:
    """Its log has begun ten steps, and the ledger has leased thirteen: the next step is the fourteenth."""
    ledger = Ledger(leased=13)
    with closing(StepLog.create(tmp_path / "steps", "run-1", PLAN, 5)) as log:
        log.begin(1, 5)
        log.begin(6, 10)
        leases = BlockLeases(ledger, PLAN.steps, 5, 0, resumed=True)
        log.begin_until(leases.granted)
        budget = StepBudget(PLAN, log, leases=leases)
        assert [*budget] == list(range(14, 21))
    assert {one.generation for one in ledger.wanted} == {2}


def test_a_log_that_counts_more_than_is_leased_takes_no_gap(tmp_path: Path) -> None:
    """A torn line counted as a whole block: the steps before the next one are leased with it, and not taken."""
    ledger = Ledger(leased=7)
    with closing(StepLog.create(tmp_path / "steps", "run-1", PLAN, 10)) as log:
        log.begin(1, 10)
        leases = BlockLeases(ledger, PLAN.steps, 10, 0, resumed=True)
        log.begin_until(leases.granted)
        assert [*StepBudget(PLAN, log, leases=leases)] == list(range(11, 21))
    assert _sizes(ledger) == [(8, 20)]


def test_no_two_requests_and_no_two_keys_are_drawn_alike() -> None:
    """Ids of leases and the streams of two leases."""
    ids = {LeaseRequest.fresh(1, (1, 2), "", 0).id for _ in range(100)}
    assert len(ids) == 100
    one, other = (CsprngRandomness.fresh().stream("noise", 1).take(32) for _ in range(2))
    assert one != other


def test_a_lease_says_how_many_steps_are_taken_and_makes_the_chain() -> None:
    """Those before the one that is next; never more than are leased; and the chain is over the ids, in order."""
    ledger = Ledger()
    leases = BlockLeases(ledger, PLAN.steps, 10, 0, resumed=False)
    for step in range(1, 12):
        assert leases.reach(step, lambda: "") == ""
    leases.settle()
    leases.settle()
    assert [one.taken for one in ledger.wanted] == [0, 5]
    first, second = (one.id for one in ledger.wanted)
    assert leases.chain == chained(chained("", first), second)


def test_a_larger_lease_trains_longer_without_a_network() -> None:
    """Every request but the first is lost: the run takes what is leased, all of its steps where one lease has them."""
    for block, taken in ((5, 5), (PLAN.steps, PLAN.steps)):
        leases = BlockLeases(Ledger(answers=Unreachable("no answer")), PLAN.steps, block, 0, resumed=False)
        steps = range(1, PLAN.steps + 1)
        assert [step for step in steps if step <= taken and not leases.reach(step, lambda: "")] == [
            *range(1, taken + 1)
        ]
        assert leases.granted == taken
        if taken < PLAN.steps:
            assert leases.reach(taken + 1, lambda: "") == "no further steps are leased: no answer"
