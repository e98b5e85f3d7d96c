"""An analyst against an admission rule, computed exactly by backward induction.

The analyst asks for whole runs, executes admitted ones step by step, several at once and in any interleaving, and
at any moment settles a run it stops; whatever it has seen decides what it does next. It ends when it likes, and is
then told an ε for what was admitted. The most it can reach is

    max over strategies of E_P[(1 - e^(told - L))_+],   L the loss of all executed steps,

which is the greatest H over all events that the told ε leaves out, and of (Q, P) the same. A rule is kept when this
stays within δ in both directions. With the budget's ε told always, this tries a filter; else an odometer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ledger.mechanisms.loss import Loss
from tests.ledger.filters.lattice import Array, Law, Pair, payoff

State = TypeVar("State", bound=Hashable)


class Run(NamedTuple):
    """So many steps of one mechanism of the library, asked for at once."""

    mechanism: int
    steps: int


class Rule(Protocol[State]):
    """An admission rule as a state machine over the runs of a plan, each named by its place."""

    def start(self) -> State:
        """Before anything was asked."""
        ...

    def admit(self, spent: State, run: int) -> State | None:
        """With this run admitted in full; None if refused."""
        ...

    def settle(self, spent: State, run: int, ran: int) -> State:
        """With the steps of this admitted run beyond the first ``ran`` given back."""
        ...


@dataclass(frozen=True)
class Charging:
    """A rule that adds up charges: ``charges[run][ran]`` is what a run counts for after ``ran`` steps."""

    charges: tuple[tuple[Loss, ...], ...]
    admits: Callable[[Loss], bool]

    @classmethod
    def per_step(cls, runs: Sequence[Run], prices: Sequence[Loss], admits: Callable[[Loss], bool]) -> Charging:
        """Every step of a mechanism costs the same; an infinite price counts once per run, as in the ledger."""
        charges = []
        for mechanism, steps in runs:
            price = prices[mechanism]
            charges.append(
                tuple(
                    Loss(tuple(ran * at for at in price.finite), tuple(min(1, ran) * at for at in price.infinite))
                    for ran in range(steps + 1)
                )
            )
        return cls(tuple(charges), admits)

    def start(self) -> Loss:
        """Nothing is charged."""
        return Loss.zero(len(self.charges[0][0].finite))

    def admit(self, spent: Loss, run: int) -> Loss | None:
        """Charge the whole run."""
        after = spent + self.charges[run][-1]
        return after if self.admits(after) else None

    def settle(self, spent: Loss, run: int, ran: int) -> Loss:
        """Refund c(T) - c(T')."""
        return spent - self.charges[run][-1] + self.charges[run][ran]


class Node(NamedTuple, Generic[State]):
    """Where the game stands but for the loss: open runs by place and executed steps, and admissions left."""

    spent: State
    running: tuple[tuple[int, int], ...]
    left: int


Move = tuple[int | None, int]
"""The mechanism that makes a step, or none; and the place of the node that follows."""


@dataclass(frozen=True)
class Game(Generic[State]):
    """All that a rule lets an analyst do: nodes in an order in which every move leads back, the start last."""

    nodes: list[Node[State]]
    moves: list[list[Move]]

    @classmethod
    def explore(
        cls, rule: Rule[State], runs: Sequence[Run], *, together: int = 1, admissions: int | None = None
    ) -> Game[State]:
        """Every position that can be reached with so many runs open at a time and admitted in all.

        A run may be voided before its first step only if admissions are limited: else that leads nowhere.
        """
        start = Node(rule.start(), (), -1 if admissions is None else admissions)
        after: dict[Node[State], list[tuple[int | None, Node[State]]]] = {}
        place: dict[Node[State], int] = {}
        nodes: list[Node[State]] = []
        stack = [start]
        while stack:
            node = stack[-1]
            if node in place:
                stack.pop()
            elif node not in after:
                after[node] = list(_moves(node, rule, runs, together))
                ahead = [next_ for _, next_ in after[node] if next_ not in place]
                if any(next_ in after for next_ in ahead):
                    raise ValueError("the rule lets the analyst go in circles")
                stack.extend(ahead)
            else:
                place[node] = len(nodes)
                nodes.append(node)
                stack.pop()
        moves = [list(dict.fromkeys((step, place[next_]) for step, next_ in after[node])) for node in nodes]
        return cls(nodes, moves)

    def reached(self, library: Sequence[Pair], reported: Callable[[State], float], width: int | None = None) -> float:
        """The most the analyst reaches, of both directions; exact, or a lower bound if losses are cut to ``width``."""
        step = library[0].step
        claims = [reported(node.spent) for node in self.nodes]
        return max(
            self._reached([one.forward for one in library], step, claims, width),
            self._reached([one.backward for one in library], step, claims, width),
        )

    def _reached(self, laws: Sequence[Law], step: float, claims: Sequence[float], width: int | None) -> float:
        spans = self._spans(laws, width)
        values: list[Array] = []
        # Of an infinite loss: whatever finite ε is told is wrong for sure, and an infinite one is never wrong.
        lost: list[float] = []
        for (low, high), claim, moves in zip(spans, claims, self.moves, strict=True):
            best = payoff(claim, step, low, high)
            lost.append(max([float(claim < inf), *(lost[next_] for _, next_ in moves)]))
            for mechanism, next_ in moves:
                start = spans[next_][0]
                if mechanism is None:
                    reached = _between(values[next_], low - start, high - start)
                else:
                    law = laws[mechanism]
                    inside = _between(values[next_], low + law.low - start, high + law.high - start)
                    reached = law.expected(inside) + law.sure * lost[next_]
                np.maximum(best, reached, out=best)
            values.append(best)
        return float(values[-1][-spans[-1][0]])

    def _spans(self, laws: Sequence[Law], width: int | None) -> list[tuple[int, int]]:
        """The losses that each node can be reached with."""
        lows, highs = [0] * len(self.nodes), [0] * len(self.nodes)
        for at in reversed(range(len(self.nodes))):
            for mechanism, next_ in self.moves[at]:
                down, up = (0, 0) if mechanism is None else (laws[mechanism].low, laws[mechanism].high)
                lows[next_] = min(lows[next_], lows[at] + down)
                highs[next_] = max(highs[next_], highs[at] + up)
        if width is not None:
            lows, highs = [max(low, -width) for low in lows], [min(high, width) for high in highs]
        return list(zip(lows, highs, strict=True))


def _moves(
    node: Node[State], rule: Rule[State], runs: Sequence[Run], together: int
) -> Iterator[tuple[int | None, Node[State]]]:
    for at, (run, ran) in enumerate(node.running):
        others = (*node.running[:at], *node.running[at + 1 :])
        if ran + 1 == runs[run].steps:
            yield runs[run].mechanism, Node(rule.settle(node.spent, run, ran + 1), others, node.left)
        else:
            running = tuple(sorted((*others, (run, ran + 1))))
            yield runs[run].mechanism, Node(node.spent, running, node.left)
        if ran or node.left >= 0:
            yield None, Node(rule.settle(node.spent, run, ran), others, node.left)
    if len(node.running) < together and node.left:
        for run in range(len(runs)):
            after = rule.admit(node.spent, run)
            if after is not None:
                running = tuple(sorted((*node.running, (run, 0))))
                yield None, Node(after, running, node.left - 1 if node.left > 0 else node.left)


def _between(values: Array, start: int, stop: int) -> Array:
    """``values[start..stop]``: nothing below the first value, and no more than the last one above it."""
    inside = values[max(0, start) : max(0, stop + 1)]
    if start >= 0 and stop < len(values):
        return inside
    return np.pad(
        np.pad(inside, (0, max(0, stop + 1 - max(start, len(values)))), constant_values=values[-1]),
        (max(0, min(stop + 1, 0) - start), 0),
    )
