"""The reported ε of one fixed run at a δ, with the accountant (PLD, RDP or basic composition) that proves it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from typing import Final

from ledger.accounting import pld_mechanisms
from ledger.accounting.pld import GridTooLarge, OutputsNotFound
from ledger.accounting.pure_dp import pure_epsilon
from ledger.accounting.renyi import divergence
from ledger.accounting.renyi_closed_forms import conversion, delta_of_group
from ledger.accounting.rounding import float_down
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.mechanism import BlackBox, Composed, Group, Mechanism, SelfComposed
from ledger.mechanisms.price_proofs import NotPriced, require_priced
from ledger.wire.canonical_json import Object
from ledger.wire.exact_numbers import DELTA_MIN, ceil_decimal, format_number
from ledger.wire.malformed import Malformed

ORDERS: Final = (*range(2, 65), 96, 128, 192, 256)
_PLD_EPSILON_MAX: Final = 256
"""Twice the largest budget. Where RDP gives more, a PLD's grid would take gigabytes and change no decision."""
_STABLE: Final = 0.01
"""A finer grid that changes ε by less than this part of it is the last one."""
_PLACES: Final = 9


@dataclass(frozen=True, slots=True)
class Report:
    """The ε of one fixed run at δ, rounded up to a billionth: never of adaptively chosen runs together.

    Attributes:
        accountant: ``PLD``, ``Rényi`` or ``basic`` (the sum of pure losses), the one that proves the least ε.
        version: of the library that computed it.
    """

    epsilon: Fraction
    delta: Fraction
    accountant: str
    relation: str
    version: str

    def to_json(self) -> Object:
        """As JSON."""
        return {
            "accountant": self.accountant,
            "delta": format_number(self.delta),
            "epsilon": ceil_decimal(self.epsilon, _PLACES),
            "relation": self.relation,
            "version": self.version,
        }


@lru_cache(maxsize=4_096)
def report_epsilon(mechanism: Mechanism, delta: Fraction, relation: str) -> Report:
    """The least ε that an accountant proves of this run at δ: by PLD, by Rényi orders, or as a pure sum.

    Connect-the-dots discretisation is pessimistic, most of all for many tiny steps: it is refined while it changes
    by more than a hundredth or while RDP gives less.

    Raises:
        Malformed: if δ is below 1e-11 and not 0, or the ε is infinite.
        NotPriced: if there is no proof for this mechanism under this relation.
        OutputsNotFound: for a large group at much noise, which refuses a charge; see :func:`reported_epsilon`.
    """
    return _report(mechanism, delta, relation, grids=True)


def _report(mechanism: Mechanism, delta: Fraction, relation: str, *, grids: bool) -> Report:
    if delta and not DELTA_MIN <= delta < 1:
        raise Malformed("delta", "must be 0, or at least 1e-11 and less than 1, for an ε to be reported")
    bounds: dict[str, Fraction | None] = {}
    if delta == 0:
        bounds["basic"] = pure_epsilon(mechanism, relation)
    else:
        require_priced(mechanism, relation, "renyi")
        with suppress(NotPriced):
            bounds["basic"] = pure_epsilon(mechanism, relation)
        bounds["Rényi"] = renyi = _renyi(mechanism, delta, relation)
        if grids and (renyi is None or renyi <= _PLD_EPSILON_MAX):
            bounds["PLD"] = _pld(mechanism, delta, relation, renyi)
    finite = {name: epsilon for name, epsilon in bounds.items() if epsilon is not None}
    if not finite:
        raise Malformed("noise_multiplier", "leaves an infinite ε at this δ")
    accountant = min(finite, key=lambda name: finite[name])
    return Report(
        report_up(finite[accountant]), delta, accountant, relation, f"dp-accounting {version('dp-accounting')}"
    )


def report_up(epsilon: Fraction) -> Fraction:
    """An ε as it is reported: rounded up to a billionth."""
    return Fraction(math.ceil(epsilon * 10**_PLACES), 10**_PLACES)


def reported_epsilon(mechanism: Mechanism, delta: Fraction, relation: str) -> Fraction:
    """The ε of :func:`report_epsilon`; of other accountants where no PLD is found. Raises: Malformed, NotPriced."""
    try:
        return report_epsilon(mechanism, delta, relation).epsilon
    except OutputsNotFound:
        return _report(mechanism, delta, relation, grids=False).epsilon


@lru_cache(maxsize=4_096)
def estimate_epsilon(mechanism: Mechanism, delta: Fraction, relation: str) -> Fraction | None:
    """An upper bound near :func:`report_epsilon`, at a tenth of its work: a first guess for searches, for no decision.

    At δ = 0 it is exact. None if it is infinite.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    if delta == 0:
        return pure_epsilon(mechanism, relation)
    require_priced(mechanism, relation, "renyi")
    renyi = _renyi(mechanism, delta, relation)
    if renyi is not None and renyi > _PLD_EPSILON_MAX:
        return renyi
    try:
        coarse = pld_mechanisms.compose(mechanism, relation, pld_mechanisms.INTERVALS[0]).epsilon(float_down(delta))
    except (NotPriced, GridTooLarge, OutputsNotFound):
        return renyi
    estimates = [*([] if renyi is None else [renyi]), *([] if math.isinf(coarse) else [Fraction(coarse)])]
    return min(estimates, default=None)


def slack(mechanism: Mechanism) -> Fraction:
    """The δ of the black boxes in a mechanism, added up: what its curve leaves out."""
    match mechanism:
        case BlackBox():
            return mechanism.delta
        case Group(mechanism=BlackBox() as inner):
            return delta_of_group(inner.epsilon, inner.delta, mechanism.k)
        case Composed() | SelfComposed() | Group(mechanism=Composed() | SelfComposed() | Group()):
            return sum((count * slack(step) for count, step in to_steps(mechanism)), Fraction(0))
        case _:
            return Fraction(0)


def _renyi(mechanism: Mechanism, delta: Fraction, relation: str) -> Fraction | None:
    delta_left = delta - slack(mechanism)
    if delta_left <= 0:
        return None
    rhos = ((order, divergence(mechanism, relation, order)) for order in ORDERS)
    bounds = [rho - conversion(order, delta_left) for order, rho in rhos if rho is not None]
    return max(Fraction(0), min(bounds)) if bounds else None


def _pld(mechanism: Mechanism, delta: Fraction, relation: str, renyi: Fraction | None) -> Fraction | None:
    best = math.inf
    with suppress(NotPriced, GridTooLarge):
        for interval in pld_mechanisms.intervals(mechanism):
            whole = pld_mechanisms.compose(mechanism, relation, interval)
            epsilon = whole.epsilon(float_down(delta))
            stable = epsilon >= best * (1 - _STABLE) and (renyi is None or epsilon <= renyi)
            best = min(best, epsilon)
            if stable:
                break
    return None if math.isinf(best) else Fraction(best)
