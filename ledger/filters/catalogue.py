"""The rule ``catalogue``: count ticks of a potential over the few kinds of steps that a partition is for.

A partition names up to eight types of Poisson-sampled Gaussian steps, each with the steps of one block and its price in
ticks. Its capacity C is the greatest number of ticks whose potential (:mod:`ledger.accounting.loss_potential`) keeps
(ε, δ less slack). ``reference`` is its case of one type.

Why counting ticks is sound although each request may depend on every answer: a step with q <= q_i and σ >= σ_i is a
post-processing of a step of type i, the same for both neighbours; so is an ε-DP step, where type i takes every record
and its Gaussian has at least the ε's total variation (:func:`ledger.filters.step_types.dominating`). Let the analyst
see a whole block of type i when the first of its steps begins: that is one draw of the type's dominating pair, of which
everything else about the block (its steps, a stop, a refund, another run between them) is a post-processing. So any
interaction within C ticks is an adaptive sequence of such draws, each paid when it begins, and V_b(l) bounds what any
of them reaches (Bellman). A block that did not begin has drawn nothing, so its ticks can be given back. Any other
mechanism pays c ticks if E V_(b-c)(l + L) <= V_b(l) for every l and every b from c to the greatest number of ticks that
an ε is reported for: then V stays a supermartingale along every order of charges. A cap ε' below ε shifts the loss by
ε - ε', so one price serves all caps. The δ of black boxes goes to the slack.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ledger.filters.capacity import Cap, NoRoom
from ledger.filters.catalogue_prices import DELTA_LEAST, TICKS_MAX, choose_prices, require_delta
from ledger.filters.odometer_checkpoints import checkpoint_epsilon
from ledger.filters.rule import SLACK, Coordinate, Opening, Rule
from ledger.filters.step_types import TYPES_MAX, StepType, dominating, potential
from ledger.filters.unlisted_ticks import Piece, PriceLine, least_ticks, pays
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import Mechanism
from ledger.mechanisms.price_proofs import NotPriced, require_priced
from ledger.wire.exact_numbers import DELTA_ONE
from ledger.wire.field_types import Positive, between, constant
from ledger.wire.malformed import Malformed


class Catalogue(Rule, frozen=True, tag="catalogue", dict=True):
    """The terms of one partition.

    Attributes:
        delta: of the partition's budget; ``epsilon`` likewise.
        slack: δ units reserved for black boxes; the potential has the rest.
        capacity: ticks that keep the budget, computed at opening: the checkpoints of the odometer divide it.
        types: of the steps.
        odometers: 2 where the rule's own and the PLD of the first run share δ less slack, half each; see :class:`Rule`.
    """

    per_unit: ClassVar[bool] = True
    searched: ClassVar[bool] = True
    delta: Positive
    epsilon: Positive
    slack: Annotated[int, between(0, DELTA_ONE)]
    capacity: Annotated[int, between(1, TICKS_MAX)]
    types: Annotated[tuple[StepType, ...], Meta(min_length=1, max_length=TYPES_MAX)]
    odometers: Literal[2] | None = None
    v: Literal[1] = constant(1)

    def __post_init__(self) -> None:
        """Check that δ beyond the slack is large enough. Raises: Malformed."""
        super().__post_init__()
        require_delta(self.certain)
        if self.odometers is not None and self.odometers != odometers_at(self.certain):
            raise Malformed("odometers", "leave each too small a part of δ")

    @classmethod
    def choose(cls, opening: Opening) -> Catalogue:
        """The declared load's steps are the types; their prices are those declared, or admit the most loads like it.

        Raises:
            Malformed: if the load is not of one to eight kinds of sampled Gaussian steps, a block of one has no room,
                the relation replaces records, or δ less slack is below 1e-6.
        """
        chosen = choose_prices(opening)
        delta, epsilon, slack = opening.delta, opening.caps[0], opening.slack
        certain = delta - Fraction(slack, DELTA_ONE)
        return cls(delta, epsilon, slack, chosen.capacity, chosen.types, odometers_at(certain))

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Ticks, and the δ slack in δ units."""
        return (Coordinate("ticks", 1, ""), SLACK)

    @property
    def certain(self) -> Fraction:
        """The part of δ that the potential has."""
        return self.delta - Fraction(self.slack, DELTA_ONE)

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """Each piece in blocks of the cheapest type that dominates it, or at its own price. Raises: NotPriced."""
        require_priced(mechanism, relation, self.kind())
        return tuple(_segment(self, count, step, relation) for count, step in to_steps(mechanism))

    def covers(self, segments: tuple[Segment, ...], mechanism: Mechanism, relation: str) -> bool:
        """Whether each piece is charged as a type that dominates it, or by ticks that pay for it.

        Raises:
            NotPriced: for one without a proven price.
            ValueError: for prices at other coordinates.
        """
        require_priced(mechanism, relation, self.kind())
        runs = to_steps(mechanism)
        pairs = zip(segments, runs, strict=False)
        return len(segments) == len(runs) and all(_covered(self, segment, *run, relation) for segment, run in pairs)

    def cap(self, epsilon: Fraction) -> Cap:
        """The most ticks that keep (ε, δ less slack), and the slack. Raises: NoRoom."""
        least = min(step_type.ticks for step_type in self.types)
        ticks = potential(self.epsilon, self.certain, self.types).capacity(
            min(epsilon, self.epsilon), self.certain, self.capacity
        )
        if ticks < least:
            raise NoRoom(epsilon, _epsilon(self, least, self.certain) or self.epsilon)
        return Cap(epsilon, (ticks, self.slack))

    def keeps(self, cap: Cap) -> bool:
        """Whether a cap's ticks keep (ε, δ less slack), and its slack is within the rule's. Raises: ValueError."""
        ticks, slack = cap.capacity
        if (ticks or 0) > self.capacity or (slack or 0) > self.slack:
            return False
        lost = float(self.epsilon - min(cap.epsilon, self.epsilon))
        return not ticks or potential(self.epsilon, self.certain, self.types).at(ticks, lost) <= float(self.certain)

    def require_blocks(self, ticks: int) -> None:
        """Check that a block of each type fits a capacity: else its kind would never run. Raises: Malformed."""
        for place, step_type in enumerate(self.types):
            if step_type.ticks > ticks:
                rule = f"leaves no room for one block: it costs {step_type.ticks} ticks, and there are {ticks}"
                raise Malformed(f"prices[{place}]", rule)

    @property
    def price_line(self) -> PriceLine:
        """The input of prices of unlisted mechanisms."""
        return PriceLine(self.epsilon, self.certain, self.types, 2 * self.capacity)

    def odometer(self, loss: Loss) -> Fraction:
        """The ε of the least checkpoint of ticks, at its share of δ less slack; the slack's part of δ is the rest.

        No ε is reported for more ticks than prices hold up to.

        Raises:
            ArithmeticError: if a charge is infinite, the slack is overdrawn, or no ε is proven.
        """
        return checkpoint_epsilon(loss, self.slack, lambda: self.capacity, self._checkpoint)

    def _checkpoint(self, ticks: int, share: Fraction) -> Fraction | None:
        return _epsilon(self, ticks, self.odometer_delta * share) if ticks <= self.price_line.most else None


def odometers_at(certain: Fraction) -> Literal[2] | None:
    """How many odometers may share this part of δ."""
    return 2 if certain >= 2 * DELTA_LEAST else None


def _epsilon(rule: Catalogue, ticks: int, delta: Fraction) -> Fraction | None:
    bound = potential(rule.epsilon, rule.certain, rule.types).bound(ticks, delta)
    return None if bound is None else Fraction(bound)


@lru_cache(maxsize=4_096)
def _segment(rule: Catalogue, count: int, step: Mechanism, relation: str) -> Segment:
    sampled = dominating(step)
    listed = [step_type.segment(count) for step_type in rule.types if sampled and step_type.dominates(sampled)]
    if listed:
        return min(listed, key=lambda segment: (-(-count // segment.unit) * (segment.price[0] or 0), segment.unit))
    piece = Piece(count, step, relation)
    ticks = least_ticks(rule.price_line, piece)
    if ticks is None:
        raise NotPriced(f"a step of {step.kind} has no price in ticks: declare it as a type of the partition's load")
    return Segment(count, (ticks, piece.slack), count)


def _covered(rule: Catalogue, segment: Segment, count: int, step: Mechanism, relation: str) -> bool:
    ticks, units = segment.price
    if segment.steps != count:
        return False
    sampled = dominating(step)
    listed = (kind.segment(count) for kind in rule.types if sampled and kind.dominates(sampled))
    if units is not None and any(segment.covers(least) for least in listed if least.unit == segment.unit):
        return True
    piece = Piece(count, step, relation)
    if segment.unit != count or (units is not None and units < piece.slack):
        return False
    # An infinite price is never admitted, and covers every other price.
    return ticks is None or pays(rule.price_line, piece, ticks)
