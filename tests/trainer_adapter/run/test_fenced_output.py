"""Nothing leaves a run that leases its steps but behind a lease or the post, each with the digest of all of it."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from torch.nn.functional import cross_entropy

from client.http.problems import Unreachable
from ledger.commands.entry import Entry
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.run.block_leases import BlockLeases
from trainer_adapter.run.fenced_output import FencedOutput
from trainer_adapter.run.state_digest import state_digest
from trainer_adapter.session.lease_requests import LeaseRequest, LeaseRequests
from trainer_adapter.training.attach import attach
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Options

QUIET = structs.replace(PLAN, noise_multiplier=Fraction(80))


class Ledger(LeaseRequests):
    """Grants the leases that it is let to, and fails the others."""

    def __init__(self, grants: int) -> None:
        """The first so many."""
        self.wanted, self.grants = list[LeaseRequest](), grants

    def lease(self, wanted: LeaseRequest) -> None:
        """Note it, and grant it or not."""
        self.wanted.append(wanted)
        if len(self.wanted) > self.grants:
            raise Unreachable("no answer")


@given(st.lists(st.sampled_from(["put", "seal", "granted"]), max_size=20))
def test_of_counts_that_no_command_names_the_newest_leaves_alone(acts: list[str]) -> None:
    """However many came before it: each command names at most one more, and it is the newest."""
    output, left, said = FencedOutput(), list[int](), 0
    output.fence()
    named, sealed = list[int](), 0
    for act in acts:
        if act == "put":
            said += 1
            output.put_newest({"done": said}, partial(left.append, said))
        elif act == "seal":
            named += [said] if said > sealed else []
            sealed = said
            waiting: list[c.Json] = [{"done": one} for one in named[len(left) :]]
            assert output.seal() == (c.digest(c.dump(waiting)) if waiting else None)
        else:
            output.let_out()
            assert left == named


@given(st.lists(st.sampled_from(["put", "seal", "granted"]), max_size=20), st.booleans())
def test_what_has_left_is_what_was_sealed_before_an_entry(acts: list[str], posted: bool) -> None:  # noqa: FBT001 - drawn
    """In any order of outputs, requests and entries: in order, each once, and never ahead of its fence."""
    output, left, said = FencedOutput(), list[int](), 0
    output.fence()
    covered = 0
    for act in acts:
        if act == "put":
            said += 1
            output.put(said, partial(left.append, said))
        elif act == "seal":
            held = [*range(len(left) + 1, said + 1)]
            assert output.seal() == (c.digest(c.dump([*held])) if held else None)
            covered = said
        else:
            output.let_out()
            assert left == [*range(1, covered + 1)]
    output.seal()
    output.end(posted=posted)
    output.put("later", lambda: left.append(0))
    assert left == ([*range(1, said + 1), 0] if posted else [*range(1, covered_before(left, covered) + 1)])


def covered_before(left: list[int], covered: int) -> int:
    """Without a post nothing leaves at the end."""
    assert len(left) <= covered
    return len(left)


def test_an_output_leaves_with_the_lease_that_was_asked_after_it() -> None:
    """Said in the first half of a lease it leaves once the next one is granted; what no lease fences stays."""
    ledger, output, left = Ledger(grants=2), FencedOutput(), list[int]()
    leases = BlockLeases(ledger, PLAN.steps, 4, 0, resumed=False, output=output)
    for step in range(1, 9):
        assert leases.reach(step, lambda: "") == ""
        output.put(step, partial(left.append, step))
        if step in {3, 7}:
            leases.settle()
    assert leases.reach(9, lambda: "") == "no further steps are leased: no answer"
    assert [one.output for one in ledger.wanted] == [None, c.digest(c.dump([1, 2])), c.digest(c.dump([3, 4, 5, 6]))]
    assert left == [1, 2]
    output.end(posted=False)
    output.put(9, lambda: left.append(9))
    assert left == [1, 2]


def test_a_lease_names_the_state_that_the_lease_before_it_ended_with() -> None:
    """Weights and optimiser: equal states alone have equal digests, and a copy is taken before the next step."""
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    ledger, seen = Ledger(grants=3), list[str]()
    leases = BlockLeases(ledger, 12, 4, 0, resumed=False, snapshot=lambda: state_digest(model, optimiser))
    for step in range(1, 13):
        assert leases.reach(step, lambda: "") == ""
        if step in {5, 9}:
            seen.append(state_digest(model, optimiser)())
        model(torch.ones(1, 3)).sum().backward()
        optimiser.step()
    assert [one.state for one in ledger.wanted] == ["", "", seen[0]]
    assert seen[0] != seen[1]
    before = state_digest(model, optimiser)
    wanted = before()
    state = optimiser.state_dict()
    with torch.no_grad():
        optimiser.state_dict()["state"][0]["exp_avg"].add_(1)
    assert (state_digest(model, optimiser)() != wanted, before()) == (True, wanted)
    optimiser.load_state_dict(state)


def _run(place: Place, name: str) -> ModelRun:
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    known = place.assignment(name, QUIET)
    return attach(model, optimiser, cross_entropy, known, Options(service=place.service))


def _recorded(place: Place, name: str) -> list[object]:
    """The digests of outputs that the entries of a run name, in order."""
    with place.book.read() as facts:
        entries = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
    own = [one for one in entries if one.request.get("charge") == name and one.kind in {"step_lease", "post"}]
    return [one.request.get("output") for one in own]


def test_every_output_of_a_run_is_in_a_digest_of_its_log(tmp_path: Path) -> None:
    """What left, cut at the digests of the leases and the post, is all that was said; and progress is a part of it."""
    with open_place(tmp_path / "place") as place:
        left, sizes = list[c.Json](), list[int]()
        with _run(place, "metrics") as run:
            for step in run:
                # The loop reports its progress when it goes on.
                said: c.Json = {"accuracy": f"0.{step}"}
                run.output.put(said, partial(left.append, said))
                sizes.append(len(left))
        assert left == [{"accuracy": f"0.{step}"} for step in range(1, PLAN.steps + 1)]
        assert sizes[0] == 0
        named = 0
        for digest in filter(None, _recorded(place, "metrics")):
            ends = range(named + 1, PLAN.steps + 1)
            named = next(end for end in ends if c.digest(c.dump([{"done": end}, *left[named:end]])) == digest)
        assert named == PLAN.steps


def test_an_error_leaves_with_the_post_or_not_at_all(tmp_path: Path) -> None:
    """Recorded by its digest, it is raised as it is; where the post is refused, what broke the run is not said."""
    with open_place(tmp_path / "place") as place:
        with pytest.raises(KeyError, match="a cause"):
            _break(place, "recorded", posted=False)
        said: list[c.Json] = [{"done": 1}, {"error": "KeyError: 'a cause'"}]
        assert _recorded(place, "recorded")[-1] in {c.digest(c.dump(said)), c.digest(c.dump(said[1:]))}
        with pytest.raises(Malformed, match="what broke it does not leave") as caught:
            _break(place, "withheld", posted=True)
        assert "a cause" not in str(caught.value)
        assert caught.value.__suppress_context__


def _break(place: Place, name: str, *, posted: bool) -> None:
    """A run that breaks after its first step; where it is ``posted``, by another, its own post is refused."""
    with _run(place, name) as run:
        next(iter(run))
        if posted:
            run.session.posts.post(PLAN.steps, {"generation": 1, "lease": _newest(place, name)})
        raise KeyError("a cause")


def _newest(place: Place, name: str) -> str:
    charge = place.charge(name)
    assert charge is not None
    assert charge.leases is not None
    return charge.leases.newest
