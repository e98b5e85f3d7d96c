"""The libraries that ours is measured against: from a folder of their own, as ``make bench`` installs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

HOME: Final = Path(os.environ.get("EPSILON_PEERS") or Path(sys.prefix) / "peers")
SCALE: Final = 10_000.0
"""Noise of a query on data at a distance of 1: it costs 1 / (2 · SCALE²) of zCDP."""
SPEND: Final = (1e-6, 1e-12)
SLACK: Final = 1e-6


@contextmanager
def in_reach() -> Iterator[None]:
    """On the path, as the last, only while they are used: several bring a package called tests."""
    if not HOME.is_dir():
        message = f"{HOME} is missing: 'make bench' installs it"
        raise FileNotFoundError(message)
    sys.path.append(str(HOME))
    try:
        yield
    finally:
        sys.path.remove(str(HOME))


class OpenDP:
    """A privacy filter: zCDP, Gaussian queries, fully adaptive. Nothing puts it into a state but answering queries."""

    name = "OpenDP filter"

    def __init__(self) -> None:
        with in_reach():
            combinators, domains, measurements, measures, metrics, mod = (
                import_module(f"opendp.{name}")
                for name in ("combinators", "domains", "measurements", "measures", "metrics", "mod")
            )
        mod.enable_features("contrib")
        space = domains.atom_domain(T=float, nan=False), metrics.absolute_distance(T=float)
        odometer = combinators.make_fully_adaptive_composition(*space, measures.zero_concentrated_divergence())
        self._query = measurements.make_gaussian(*space, scale=SCALE)
        self._filter: Any = combinators.make_privacy_filter(odometer, 1.0, 1e6)(0.0)
        self.size = 0

    def grow(self, size: int) -> None:
        """Answer queries until there are so many."""
        while self.size < size:
            self.admit()

    def admit(self) -> None:
        """One more query, answered."""
        self._filter(self._query)
        self.size += 1


class Diffprivlib:
    """A budget accountant: (ε, δ), with the slack of advanced composition. It adds every spend up at every spend."""

    name = "diffprivlib accountant"

    def __init__(self) -> None:
        with in_reach():
            # The package's own __init__ imports tree models that this scikit-learn no longer has the names for.
            bare = ModuleType("diffprivlib")
            bare.__path__ = [str(HOME / "diffprivlib")]
            before = sys.modules.setdefault("diffprivlib", bare)
            assert before.__path__ == bare.__path__
            self._accountant = import_module("diffprivlib.accountant").BudgetAccountant
        self.grow(0)

    def grow(self, size: int) -> None:
        """Spends that an earlier accountant recorded, read without a ceiling (every check is quadratic), then one."""
        self._spent = self._accountant(slack=SLACK, spent_budget=[SPEND] * size)
        self._spent._BudgetAccountant__epsilon = 10.0  # noqa: SLF001 - its ceiling is set only when it is made
        self._spent._BudgetAccountant__delta = 0.5  # noqa: SLF001
        self.size = size

    def admit(self) -> None:
        """One more spend, checked and kept."""
        self._spent.spend(*SPEND)
        self.size += 1
