"""What each slice of a stream has lost, added up from the bytes of the log alone: no account, rule or price is asked.

The price of a step is held against the formula of the sampled Gaussian at an integer order (Mironov, Talwar, Zhang
2019), and a sum against the bound of one order (Canonne, Kamath, Steinke 2020, Proposition 12), both in floats: a
recorded price is at least a billionth above the first, and sums that are so close to a bound do not occur.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import comb, exp, fsum, log, log1p
from typing import Any, Final

UNIT: Final = 2**40
"""Loss units of a nat."""
WEIGHT: Final = 1_000


@dataclass(frozen=True, slots=True)
class SliceTerms:
    """What a slice opened with: each order, and its share of δ."""

    epsilon: float
    shares: tuple[tuple[int, float], ...]

    def admits(self, lost: Sequence[int], epsilon: float) -> bool:
        """Whether a sum is within the bound of some order."""
        bounds = (epsilon - log1p(-1 / order) + log(share * order) / (order - 1) for order, share in self.shares)
        return any(at / UNIT <= bound for at, bound in zip(lost, bounds, strict=False))


@dataclass(slots=True)
class Run:
    """A charge as its entry has it."""

    actor: str
    slices: tuple[str, ...]
    price: tuple[int, ...]
    steps: int
    pending: bool = True

    def cost(self, steps: int) -> tuple[int, ...]:
        """Of so many steps."""
        return tuple(steps * one for one in self.price)


@cache
def divergence(plan: str, order: int) -> float:
    """Of one step of a plan, in nats."""
    stated = json.loads(plan)
    q, noise = float(Fraction(stated["sampler"]["probability"])), float(Fraction(stated["noise_multiplier"]))
    terms = (
        comb(order, k) * (1 - q) ** (order - k) * q**k * exp((k * k - k) / (2 * noise**2)) for k in range(order + 1)
    )
    return log(fsum(terms)) / (order - 1)


class SliceSums:
    """The sums of one dataset.

    Attributes:
        opened: the terms of each slice, in order of opening.
        retired: those that take nothing new.
        runs: by the id of the charge.
        late: how many runs were settled after a slice of theirs had retired.
    """

    def __init__(self) -> None:
        """Of an empty log."""
        self.read_to = 0
        self.opened: dict[str, SliceTerms] = {}
        self.retired: set[str] = set()
        self.runs: dict[str, Run] = {}
        self.late = 0
        self._lost: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))

    def read(self, entries: Iterable[bytes]) -> None:
        """Go on with the next entries."""
        for data in entries:
            self.read_to += 1
            entry: Any = json.loads(data)
            if entry["body"]["outcome"] in {"permitted", "pending", "posted", "voided"}:
                self._read(entry["kind"], entry, entry["body"])

    def _read(self, kind: str, entry: Any, body: Any) -> None:  # noqa: ANN401 - JSON
        requested = body["request"]
        if kind == "partition":
            rule, delta = body["terms"], float(Fraction(body["terms"]["delta"]))
            assert (rule.get("slack", 0), sum(rule["weights"]) <= WEIGHT) == (0, True)
            shares = (delta * weight / WEIGHT for weight in rule["weights"])
            terms = SliceTerms(float(Fraction(requested["epsilon"])), tuple(zip(rule["orders"], shares, strict=True)))
            self.opened[requested["partition"]] = terms
        elif kind == "retirement":
            self.retired.add(requested["partition"].rpartition("/")[2])
        elif kind == "charge":
            self._charge(entry["id"], entry["actor"], body)
        elif kind in {"post", "void", "lapse"}:
            self._settle(requested["charge"], body)

    def _charge(self, name: str, actor: str, body: Any) -> None:  # noqa: ANN401 - JSON
        requested, names = body["request"], [*self.opened]
        slices: list[str] = []
        for one in requested["ranges"]:
            slices += names[names.index(one["first"]) : names.index(one["last"]) + 1]
        (segment,) = (only for (only,) in body["prices"].values())
        run = Run(actor, tuple(slices), tuple(segment["price"]), requested["plan"]["steps"])
        assert (segment["steps"], segment["unit"]) == (run.steps, 1)
        spelled = json.dumps(requested["plan"], sort_keys=True)
        for (order, _), price in zip(self.opened[slices[0]].shares, run.price, strict=False):
            assert price > divergence(spelled, order) * UNIT
        self.runs[name] = run
        self._add(run, run.steps)

    def _settle(self, name: str, body: Any) -> None:  # noqa: ANN401 - JSON
        run = self.runs[name]
        assert run.pending, name
        run.pending = False
        self.late += not self.retired.isdisjoint(run.slices)
        steps = body["request"].get("steps", run.steps) if body["outcome"] == "posted" else 0
        self._add(run, steps - run.steps)

    def _add(self, run: Run, steps: int) -> None:
        cost = run.cost(steps)
        for name in run.slices:
            of = self._lost[name]
            of[run.actor] = [a + b for a, b in zip(of[run.actor] or [0] * len(cost), cost, strict=True)]

    def lost(self, name: str, actors: Collection[str] = ()) -> list[int]:
        """What a slice has lost to some organisations together, or to all."""
        known = [lost for who, lost in self._lost[name].items() if who in actors or not actors]
        return [*map(sum, zip(*known, strict=True))] or [0] * (1 + len(self.opened[name].shares))

    def over(self) -> list[str]:
        """The slices that are over their budget."""
        return [name for name, terms in self.opened.items() if not terms.admits(self.lost(name), terms.epsilon)]

    def without_room(self, slices: Sequence[str], run: Run, actors: Collection[str], epsilon: float) -> list[str]:
        """Those in which some organisations together, or all, would be beyond a cap with one more such run."""
        cost = run.cost(run.steps)
        return [
            name
            for name in slices
            if not self.opened[name].admits(
                [at + more for at, more in zip(self.lost(name, actors), cost, strict=True)], epsilon
            )
        ]
