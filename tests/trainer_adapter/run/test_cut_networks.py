"""A network cut in the middle of a request, a lost answer, a restarted service: the steps with noise are those posted.

A network's process is killed while it holds half of a request or of an answer, and comes back; the service's is killed
meanwhile and started again, and the clean room's is killed and resumed.
"""

from __future__ import annotations

import hashlib
import random
import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ledger.commands.registry import PATHS
from ledger.domain.outcomes import Code
from tests.trainer_adapter.cut_place import Cut, Outages, open_cut_place
from tests.trainer_adapter.killed_runs import STEPS, Killer, killer_at

pytestmark = pytest.mark.soak

ROUNDS, LEASES = 200, 5
KINDS = ("step_lease", "post", "model_release")
NUMBERS = ROUNDS * len(KINDS)
"""So many rounds that each kind of request is cut in 200."""
POINTS = ("asked", "half", "answered", "half_answer")
Cutting = tuple[Killer, Outages]


@pytest.fixture(scope="module")
def cutting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cutting]:
    """A service behind a network, and one process whose children train."""
    with (
        open_cut_place(tmp_path_factory.mktemp("cuts") / "place") as (place, outages),
        killer_at(place) as killer,
    ):
        yield killer, outages


def _hold(killer: Killer, run: str, *, resumed: bool) -> int:
    """Hold what left the run's room to the book: noise, leases, posts, models; how many entries post it."""
    charge, noise = killer.place.charge(run), killer.noise(run)
    assert charge is not None
    assert charge.steps_posted == STEPS
    assert noise == sorted(set(noise))
    assert len(noise) == STEPS or (resumed and len(noise) < STEPS)
    leases = [one for one in killer.entries(run, "step_lease") if one.code is Code.PERMITTED]
    spans = [range(int(str(one.request["first"])), int(str(one.request["last"])) + 1) for one in leases]
    assert [step for span in spans for step in span] == [*range(1, STEPS + 1)]
    (posted,) = posts = [one for one in killer.entries(run, "post") if one.code is Code.POSTED]
    assert {*killer.left(run)} <= {one.request.get("output") for one in (*leases, posted)}
    asked = killer.entries(run, "model_release")
    # A room that died before it heard the answer asks once more, for the same model.
    assert len(asked) == 1 or (resumed and len(asked) == 2)
    assert {one.code for one in asked} == {Code.PERMITTED}
    folder = killer.place.folder / "runs" / run
    model = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert {one.request["model"] for one in (*asked, posted)} == {charge.model} == {model}
    return len(posts)


def _round(cutting: Cutting, run: str, cut: Cut, *, restart: bool = False, dies: bool = False) -> int:
    killer, outages = cutting
    outages.arm(cut)
    killer.start(run)
    outages.wait()
    if dies:
        killer.kill(run)
        assert killer.status() == signal.SIGKILL
    outages.mend(restart=restart)
    ended = killer.run(run, None, resume=True) if dies else killer.status()
    assert ended == 0, killer.said(run)
    return _hold(killer, run, resumed=dies)


def test_a_lease_whose_answer_is_lost_is_asked_again_and_is_the_same(cutting: Cutting) -> None:
    """The service that recorded it is killed before the answer arrives: the next one knows the lease by its id."""
    assert _round(cutting, "lost-lease", Cut(PATHS["step_lease"], 3, "answered"), restart=True) == 1
    assert len(cutting[0].entries("lost-lease", "step_lease")) == LEASES


def test_a_post_that_is_cut_in_half_is_posted_once(cutting: Cutting) -> None:
    """Half of the answer came: sent again, it is the same post."""
    assert _round(cutting, "half-post", Cut(PATHS["post"], 1, "half_answer")) == 1


def test_a_room_that_dies_with_an_unheard_lease_takes_none_of_its_steps(cutting: Cutting) -> None:
    """They are leased, whoever heard of it: the resumed run goes on behind them."""
    assert _round(cutting, "unheard", Cut(PATHS["step_lease"], 3, "answered"), dies=True) == 1
    (leased,) = cutting[0].leased_before("unheard")
    assert leased == 30
    assert not {*range(21, 31)} & {*cutting[0].noise("unheard")}


class Drawn(NamedTuple):
    """What happens in one round."""

    cut: Cut
    restart: bool
    dies: bool


def _drawn(number: int) -> Drawn:
    """A round by its number: what it cuts, where, whether the service restarts and whether the room dies go in turn.

    So each has its share of any rounds in a row; only the order of leases is drawn.
    """
    number, kind = divmod(number, len(KINDS))
    number, restart = divmod(number, 2)
    number, point = divmod(number, len(POINTS))
    lease = random.Random(number).randint(1, LEASES)  # noqa: S311 - a seed, so that a failure comes again
    cut = Cut(PATHS[KINDS[kind]], lease if KINDS[kind] == "step_lease" else 1, POINTS[point])
    return Drawn(cut, restart=bool(restart), dies=number % 3 == 0)


def test_each_kind_of_outage_has_its_rounds() -> None:
    """Each request that is cut, a restarted service, and an answer that is lost: at least 200 rounds of each."""
    drawn = [_drawn(number) for number in range(NUMBERS)]
    for kind in KINDS:
        assert sum(one.cut.path == PATHS[kind] for one in drawn) >= ROUNDS, kind
    lost = [one for one in drawn if one.cut.point in {"answered", "half_answer"}]
    for found in (lost, [one for one in drawn if one.restart], [one for one in drawn if one.dies]):
        assert len(found) >= ROUNDS
    everything = {(one.cut.path, one.cut.point, one.restart, one.dies) for one in drawn}
    assert len(everything) == len(KINDS) * len(POINTS) * 2 * 2
    assert {one.cut.number for one in drawn} == {*range(1, LEASES + 1)}


@pytest.mark.parametrize("number", range(NUMBERS))
def test_a_cut_anywhere(cutting: Cutting, number: int) -> None:
    """In any lease, post or release of a model, at any point of it; whatever else is killed meanwhile."""
    cut, restart, dies = _drawn(number)
    assert _round(cutting, f"cut-{number}", cut, restart=restart, dies=dies) == 1
