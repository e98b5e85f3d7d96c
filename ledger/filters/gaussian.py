"""The rule ``gaussian``: each run certified as one Gaussian, and a small part of δ for the rest.

A run has a certificate (μ, τ) if its hockey-stick curves keep H_e <= τ + H_e(G_μ) at every e >= 0 for both orders of
the pair. Admit while Σμ² <= μ_G² and Στ <= s, where H_ε(G_(μ_G)) <= δ - s.

Why that is sound under adaptive requests: let Φ(m, l) = H_(ε-l)(G_√m), the worst δ still possible with m left after
a loss of l. A run with certificate (μ, τ) has E[H_(ε-l-L)(G_√(m-μ²))] <= H_(ε-l)(G_√m) + τ, since a Gaussian of μ²
and one of m - μ² are together one of m, and e < 0 follows from e >= 0 by duality. So Φ grows by at most τ a run, and
by at most s in all. Several runs at once change nothing: a certified run is a post-processing of one draw from a
dominating pair, taken when it begins. Gaussian mechanisms alone: Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023.

A certificate is of a whole run: one that has begun is charged whole. Gaussian noise without sampling, pure and
black-box losses add up step by step and are refunded so.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar, Final, Literal

from ledger.accounting.epsilon_report import slack
from ledger.accounting.gaussian_certificates import (
    certificate,
    certified,
    exact_square,
    exact_square_covers,
    gaussian_capacity,
    gaussian_epsilon,
    gaussian_keeps,
)
from ledger.filters.capacity import Cap, NoRoom
from ledger.filters.odometer_checkpoints import checkpoint_epsilon
from ledger.filters.rule import SLACK, Coordinate, Opening, Rule
from ledger.mechanisms.decomposition import Steps, to_steps
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import Mechanism
from ledger.mechanisms.price_proofs import require_priced
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.exact_numbers import DELTA_ONE, NAT, ceil_slack
from ledger.wire.field_types import Positive, between, constant, distinct
from ledger.wire.malformed import Malformed

DELTA_LEAST: Final = Fraction(1, 10**9)
MENU_MAX: Final = 16
_PARTS: Final = (2, 4, 8, 16, 64, 256)
"""Parts of the slack that one run may use: the part that admits most equal runs is chosen."""


class GaussianRule(Rule, frozen=True, tag="gaussian"):
    """The terms of one partition.

    Attributes:
        delta: of the partition's budget; ``epsilon`` likewise.
        slack: δ units that the runs' τ and black boxes share; the Gaussian has the rest.
        menu: the values of τ that a certificate may have, in δ units, fixed at opening.
        capacity: μ² of the budget, computed at opening: the checkpoints of the odometer divide it.
        odometers: 2 where the rule's own and the PLD of the first run share δ less slack, half each; see :class:`Rule`.
    """

    searched: ClassVar[bool] = True
    delta: Positive
    epsilon: Positive
    slack: Annotated[int, between(1, DELTA_ONE)]
    menu: Annotated[tuple[Annotated[int, between(1, DELTA_ONE)], ...], distinct(MENU_MAX)]
    capacity: Annotated[int, between(1, INTEGER_MAX)] | None = None
    odometers: Literal[2] | None = None
    v: Literal[1] = constant(1)

    def __post_init__(self) -> None:
        """Check that the slack is below δ, and the menu within the slack. Raises: Malformed."""
        super().__post_init__()
        if Fraction(self.slack, DELTA_ONE) >= self.delta:
            raise Malformed("slack", "must be less than δ")
        if max(self.menu) > self.slack:
            raise Malformed("menu", f"must hold values of at most the slack, {self.slack}")

    @classmethod
    def choose(cls, opening: Opening) -> GaussianRule:
        """Reserve half of δ as slack, unless another part is declared.

        Raises:
            Malformed: if δ is below 1e-9, or the slack takes all of it.
        """
        delta, slack = opening.delta, opening.slack
        if not DELTA_LEAST <= delta < 1:
            raise Malformed("delta", "must be at least 1e-9 and less than 1 for the rule gaussian")
        units = slack or int(delta * DELTA_ONE) // 2
        menu = tuple(sorted({max(1, units // part) for part in _PARTS}))
        certain = delta - Fraction(units, DELTA_ONE)
        capacity = gaussian_capacity(opening.caps[0], certain) if certain > 0 else 0
        return cls(delta, opening.caps[0], units, menu, capacity or None, 2)

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """μ² in units of 2^-40, and the δ slack in δ units."""
        return (Coordinate("mu squared", NAT, ""), SLACK)

    @property
    def certain(self) -> Fraction:
        """The part of δ that the Gaussian has."""
        return self.delta - Fraction(self.slack, DELTA_ONE)

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """Each piece at its own certificate. Slow at first, cached afterwards. Raises: NotPriced."""
        require_priced(mechanism, relation, self.kind())
        return tuple(_segment(self, run, relation) for run in to_steps(mechanism))

    def covers(self, segments: tuple[Segment, ...], mechanism: Mechanism, relation: str) -> bool:
        """Whether each piece's (μ², τ) is a certificate of it: any, with a τ of the menu, not only the one chosen here.

        Raises:
            NotPriced: for one without a proven price.
            ValueError: for prices at other coordinates.
        """
        require_priced(mechanism, relation, self.kind())
        runs = to_steps(mechanism)
        pairs = zip(segments, runs, strict=False)
        return len(segments) == len(runs) and all(_covered(self, segment, run, relation) for segment, run in pairs)

    def cap(self, epsilon: Fraction) -> Cap:
        """The greatest μ² that keeps (ε, δ less slack), and the slack. Raises: NoRoom."""
        square = gaussian_capacity(epsilon, self.certain)
        if square == 0:
            raise NoRoom(epsilon, gaussian_epsilon(1, self.certain) or epsilon)
        return Cap(epsilon, (square, self.slack))

    def keeps(self, cap: Cap) -> bool:
        """Whether a Gaussian of this μ² keeps (ε, δ less slack), and the slack is no more. Raises: ValueError."""
        square, slack = cap.capacity
        return (not square or gaussian_keeps(cap.epsilon, self.certain, square)) and (slack or 0) <= self.slack

    def odometer(self, loss: Loss) -> Fraction:
        """The ε of the least checkpoint of μ², at its share of δ less slack; the slack's part of δ is Στ.

        Raises:
            ArithmeticError: if a charge is infinite, the slack is overdrawn, or no ε is proven.
        """
        return checkpoint_epsilon(
            loss,
            self.slack,
            lambda: self.capacity or gaussian_capacity(self.epsilon, self.certain),
            lambda square, share: gaussian_epsilon(square, self.odometer_delta * share),
        )


@lru_cache(maxsize=4_096)
def _segment(rule: GaussianRule, run: Steps, relation: str) -> Segment:
    count, step = run
    square = exact_square(step, relation)
    if square is not None:
        return Segment(count, (square, ceil_slack(slack(step))))
    room = gaussian_capacity(rule.epsilon, rule.certain)
    offers = [
        (min(Fraction(room, known), Fraction(rule.slack, tau)), known, tau)
        for tau in rule.menu
        if (known := certificate(step, relation, count, Fraction(tau, DELTA_ONE)))
    ]
    _, best, tau = max(offers, default=(Fraction(0), None, 0))
    return Segment(count, (best, tau), unit=count)


def _covered(rule: GaussianRule, segment: Segment, run: Steps, relation: str) -> bool:
    count, step = run
    square, tau = segment.price
    # An infinite price is never admitted, and covers every other price.
    exact = exact_square_covers(step, relation, NAT * NAT if square is None else square)
    if exact is not None:
        return exact and (segment.steps, segment.unit) == (count, 1) and (tau is None or tau >= ceil_slack(slack(step)))
    if (segment.steps, segment.unit) != (count, count):
        return False
    if square is None or tau is None:
        return True
    return tau in rule.menu and certified(step, relation, count, Fraction(tau, DELTA_ONE), square)
