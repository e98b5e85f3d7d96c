"""When a machine is cloned by its snapshot, and what both machines may leave of their one run."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Final

from ledger.domain.outcomes import Code
from tests.trainer_adapter.killed_runs import STEPS, Killer, Moment

BLOCK: Final = 10
"""The steps of a lease."""


@dataclass(frozen=True)
class Snapshot:
    """When a machine is cloned.

    Attributes:
        step: after the noise of this step; the one after the last is the moment before the post.
        point: where a request for a lease that is under way then is: ``asked`` or ``granted``.
        later: whether the clone goes on only when the first machine's run is over.
    """

    step: int
    point: str
    later: bool

    @property
    def moment(self) -> Moment:
        """As the worker counts it."""
        return ("noised", self.step - 1) if self.step <= STEPS else ("post", 0)

    @property
    def requested(self) -> int | None:
        """The first step of the lease that is requested at that moment: from the sixth step of a lease on the next."""
        first = (self.step - 1) // BLOCK * BLOCK + BLOCK + 1
        return first if (self.step - 1) % BLOCK >= BLOCK // 2 and first <= STEPS else None

    @property
    def in_flight(self) -> range:
        """The steps after the moment that are leased, or in the request that is under way."""
        first = (self.step - 1) // BLOCK * BLOCK + 1 if self.requested is None else self.requested
        return range(self.step + 1, min(STEPS, first + BLOCK - 1) + 1)

    @classmethod
    def drawn(cls, seed: int) -> Snapshot:
        """Any step, and before the post."""
        chosen = random.Random(seed)  # noqa: S311 - a seed, so that a failure comes again
        return cls(chosen.randint(1, STEPS + 1), chosen.choice(["asked", "granted"]), chosen.random() < 1 / 2)


def _hold(killer: Killer, run: str, at: Snapshot, ended: tuple[int, int]) -> None:
    """Hold what two machines left to the ledger's book."""
    names = (run, f"{run}-clone")
    noise = [list(zip(killer.noise(name), killer.keys(name), strict=True)) for name in names]
    before = [one for one in noise[0] if one[0] <= at.step]
    after = [noise[0][len(before) :], noise[1]]
    charge = killer.place.charge(run)
    assert charge is not None
    assert charge.steps_posted is not None
    # One machine ends well. What it used is a run: each step once, and no more of them than are posted.
    seen = before + after[ended.index(0)]
    assert [step for step, _ in seen] == sorted({step for step, _ in seen})
    assert len(seen) <= charge.steps_posted == STEPS
    # What the other used besides is of leases that were in flight, each step once.
    if 1 in ended:
        besides = [step for step, _ in after[ended.index(1)]]
        assert besides == list(at.in_flight[: len(besides)])
        assert "conflict" in killer.said(names[ended.index(1)]) or "posted" in killer.said(names[ended.index(1)])
    _hold_what_left(killer, run, charge.model)


def _hold_what_left(killer: Killer, run: str, model: str | None) -> None:
    """One post, one model in all files, and nothing else but what an entry names."""
    assert len([one for one in killer.entries(run, "post") if one.code is Code.POSTED]) == 1
    released = {one.request["model"] for one in killer.entries(run, "model_release") if one.code is Code.PERMITTED}
    assert released <= {model}
    named = {
        one.request.get("output")
        for kind in ("step_lease", "post")
        for one in killer.entries(run, kind)
        if one.code in {Code.PERMITTED, Code.POSTED}
    }
    assert {*killer.left(run), *killer.left(f"{run}-clone")} <= named
    machines = (killer.place.folder, killer.clone_of(run))
    files = [path for one in machines for path in (one / "runs" / run).glob("model.*")]
    assert not [path for path in files if path.suffix == ".sealed"]
    models = [path.read_bytes() for path in files if path.suffix == ".safetensors"]
    assert {hashlib.sha256(one).hexdigest() for one in models} == {model}


def clone_and_hold(killer: Killer, run: str, at: Snapshot) -> tuple[int, int]:
    """Clone a run's machine, and hold what both left to the ledger's book; the exit statuses of the two."""
    ended = killer.cloned(run, at.moment, (at.requested, at.point), later=at.later)
    assert 0 in ended, (killer.said(run), killer.said(f"{run}-clone"))
    _hold(killer, run, at, ended)
    return ended
