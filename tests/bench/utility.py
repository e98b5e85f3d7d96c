"""How much a budget lets through: runs admitted before the first refusal, under each rule, as a Markdown table.

    make utility

Beside the rules stand two that are none. *Basic composition* tells each run's own ε by PLD at its share of δ and adds
up both (Dwork, Roth 2014, Theorem 3.16); it is given the number of runs beforehand, and the best split of δ. *PLD,
fixed list* composes the exact curves of runs that were all chosen beforehand: nobody who may choose again after every
answer can be admitted on it, so it is what no filter can beat. Both use the finest of a few grids on which the
library's rounding does not yet show; a coarser one tells more ε, and so fewer runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, Final

from ledger.filters import NoRoom, Opening, choose_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Composed, Mechanism, PoissonGaussian
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from dp_accounting.pld import PLDAccountant

RULES: Final = (("renyi", False), ("renyi", True), ("reference", True), ("gaussian", False), ("catalogue", True))
"""Each with the load declared at opening or not. `reference` needs one plan, `gaussian` takes no account of it."""
RUNS_MAX: Final = 10_000
PIECES: Final = 20
"""Into which δ is cut to be split."""
RELATION: Final = "REPLACE_SPECIAL"
Parts = tuple[tuple[PoissonGaussian, int], ...]
COVID: Final = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
MNIST: Final = PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1_170)
SPARSE: Final = PoissonGaussian(Fraction(1, 10_000), Fraction(8, 10), 20_000)
COUNT: Final = PoissonGaussian(Fraction(1), Fraction(20), 1)
"""A statistic of all records, with Gaussian noise."""


@dataclass(frozen=True, slots=True)
class Load:
    """Runs that are asked for, over and over, under one budget.

    Attributes:
        bundle: one turn: each mechanism, and how many runs of it. A turn is what is counted.
        interval: of the PLD's grid: the finest at which the library's own rounding does not yet show.
    """

    name: str
    bundle: Parts
    epsilon: Fraction
    delta: Fraction
    interval: float

    def declared(self, kind: str) -> Mechanism:
        """What an opener would declare: the whole bundle where a rule knows several plans, else the first mechanism."""
        runs = tuple(one for one, times in self.bundle for _ in range(times))
        return Composed(runs) if kind == "catalogue" else self.bundle[0][0]

    def runs(self) -> Iterator[PoissonGaussian]:
        """Run after run, for ever."""
        return cycle([mechanism for mechanism, times in self.bundle for _ in range(times)])


LOADS: Final = (
    Load("DEPA COVID", ((COVID, 1),), Fraction(3), Fraction(1, 1483), 1e-4),
    Load("MNIST-like", ((MNIST, 1),), Fraction(3), Fraction(1, 100_000), 1e-4),
    # At 1e-4 this one keeps 530 runs. At 1e-5 rounding shows: it tells 530 runs ε 7.6, not 2.93.
    Load("large, sparse", ((SPARSE, 1),), Fraction(3), Fraction(1, 1_000_000), 2e-5),
    Load("1 COVID + 2 MNIST", ((COVID, 1), (MNIST, 2)), Fraction(3), Fraction(1, 1483), 1e-4),
    Load("1 COVID + 2 MNIST, small δ", ((COVID, 1), (MNIST, 2)), Fraction(3), Fraction(1, 100_000), 1e-4),
    Load("1 MNIST + 4 counts", ((MNIST, 1), (COUNT, 4)), Fraction(3), Fraction(1, 100_000), 1e-4),
)


@lru_cache(maxsize=8)
def composed(parts: Parts, interval: float) -> PLDAccountant:
    """The exact curve of a fixed list of runs, on a grid."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(NeighboringRelation[RELATION], value_discretization_interval=interval)
    for one, times in parts:
        event = PoissonSampledDpEvent(float(one.probability), GaussianDpEvent(float(one.noise_multiplier)))
        accountant.compose(event, one.steps * times)
    return accountant


def most(fits: Callable[[int], bool], guess: int = 1) -> int:
    """The largest count that fits, where fewer always fit too: doubled from a guess, then halved between."""
    low, high = 0, max(1, guess)
    while high < RUNS_MAX and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def optimum(load: Load) -> int:
    """Turns of a list fixed beforehand; searched on a coarse grid first."""

    def at(interval: float, guess: int) -> int:
        def fits(turns: int) -> bool:
            curve = composed(tuple((one, times * turns) for one, times in load.bundle), interval)
            return float(curve.get_epsilon(float(load.delta))) <= load.epsilon

        return most(fits, guess)

    return at(load.interval, at(1e-3, 1) + 1)


def basic(load: Load) -> int:
    """Turns that basic composition allows under the best of the splits of δ between the kinds of runs.

    Runs of one kind share equally: a privacy curve is convex, so that no other split adds up to less.
    """

    def least(turns: int, kinds: Parts, delta: float) -> float:
        (one, times), rest = kinds[0], kinds[1:]
        splits = [place / PIECES for place in range(1, PIECES)] if rest else [1.0]
        return min(
            turns * times * float(composed(((one, 1),), load.interval).get_epsilon(share * delta / (turns * times)))
            + (least(turns, rest, (1 - share) * delta) if rest else 0.0)
            for share in splits
        )

    return most(lambda turns: least(turns, load.bundle, float(load.delta)) <= load.epsilon)


def admitted(kind: str, load: Load, declared: Mechanism | None) -> str:
    """Whole turns before a rule refuses a run; ``-`` where the rule is not known or takes no such plan."""
    try:
        rule = choose_rule(kind, Opening(load.delta, (load.epsilon,), declared))
        prices = {one: loss_of(rule.segments(one, RELATION), one.steps) for one, _ in load.bundle}
        rule = rule.for_first_run(prices[next(iter(load.runs()))])
        cap = rule.cap(load.epsilon)
    except (Malformed, NoRoom, NotPriced):
        return "-"
    loss, runs = Loss.zero(len(rule.coordinates)), 0
    for one in load.runs():
        loss += prices[one]
        if runs == RUNS_MAX or not rule.admits(loss, cap):
            break
        runs += 1
    return str(runs // sum(times for _, times in load.bundle))


def columns() -> dict[str, Callable[[Load], str]]:
    """What stands over each column, and what fills it."""
    rules = {
        f"`{kind}`{', load declared' * declared}": lambda load, kind=kind, declared=declared: admitted(
            kind, load, load.declared(kind) if declared else None
        )
        for kind, declared in RULES
    }
    return {
        "basic composition": lambda load: str(basic(load)),
        **rules,
        "PLD, fixed list": lambda load: str(optimum(load)),
    }


def main() -> None:
    """Print the table; what takes long says so on the way."""
    started, heads = perf_counter(), columns()
    _row("load", "ε, δ", *heads)
    _row(*(["---"] * (len(heads) + 2)))
    for load in LOADS:
        cells = []
        for head, fill in heads.items():
            if not head.startswith("`"):
                sys.stderr.write(f"{perf_counter() - started:5.0f} s  {load.name}: {head}\n")
            cells.append(fill(load))
        _row(load.name, f"{load.epsilon}, {load.delta}", *cells)


def _row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
