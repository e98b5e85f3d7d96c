"""The odometer of an account at other δ than its partition's, where the rule's proof holds at each.

Under the rule ``renyi`` the weights of the orders are fixed before a partition's first run, and with L the loss of all
runs and r_α their sum at order α, Σ w_α·exp((α - 1)(L - r_α)) is a supermartingale whatever δ is: δ enters the
conversion alone.
So the odometer holds at every moment at each δ, taken by itself. Under the rule ``pure`` it holds at δ = 0, and so at
every δ. The other rules share δ among checkpoints that were laid for their own: there the one point at it is proven.

Each point is a bound by itself: who chooses among them by what was seen has none.
"""

from __future__ import annotations

from fractions import Fraction

from msgspec import structs

from ledger.filters import PureSum, Rule
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss
from ledger.wire.exact_numbers import DELTA_ONE


def odometer_at(rule: Rule, loss: Loss, delta: Fraction) -> Fraction | None:
    """The ε of a loss at one δ, at every moment, rounded up; None where none is proven.

    Args:
        loss: all of the account, pending and posted.
        delta: between 0 and 1, fixed before anything ran.
    """
    own = delta == rule.delta or isinstance(rule, PureSum)
    if isinstance(rule, Renyi) and not own:
        # What is reserved for black boxes stays reserved: nothing is proven at a δ that it exceeds.
        if delta <= Fraction(rule.slack, DELTA_ONE):
            return None
        rule, own = structs.replace(rule, delta=delta), True
    try:
        return rule.odometer(loss) if own else None
    except ArithmeticError:
        return None
