"""The admission rules, behind one small interface. A partition's rule is fixed for life."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Protocol

from ledger.filters.capacity import Cap, NoRoom
from ledger.filters.gaussian import GaussianRule
from ledger.filters.pure_dp import PureSum
from ledger.filters.reference_step import Reference
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire.canonical_json import Object, one_of, parse
from ledger.wire.malformed import Malformed

TERMS_BYTES_MAX = 8_192


class Rule(Protocol):
    """How charges are admitted on one partition.

    A loss has one integer per coordinate. A cap is a bound (ε, δ) as integers: its capacity. Every test is
    monotone in the loss, so settling in any order stays sound.

    Prices and capacities that come out of floats are issued with room to spare, and checked with less of it where they
    are read: ``covers`` and ``keeps`` search for nothing, evaluate what they are given, and are sound by themselves.
    """

    @property
    def delta(self) -> Fraction:
        """Of the partition's budget."""
        ...

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        ...

    @property
    def searched(self) -> bool:
        """Whether capacities are searched for in floats: another machine may find one that differs a little."""
        ...

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """What a mechanism costs, piece by piece. Raises: NotPriced, for one without a proven price."""
        ...

    def covers(self, segments: tuple[Segment, ...], mechanism: Mechanism, relation: str) -> bool:
        """Whether a mechanism costs at most this, whoever worked it out. Raises: NotPriced, ValueError."""
        ...

    def cap(self, epsilon: Fraction) -> Cap:
        """The capacity under which the loss keeps (ε, the partition's δ). Raises: NoRoom."""
        ...

    def keeps(self, cap: Cap) -> bool:
        """Whether a loss within this capacity keeps its (ε, δ), whoever worked it out. Raises: ValueError."""
        ...

    def admits(self, loss: Loss, cap: Cap) -> bool:
        """Whether the bound still holds at this loss."""
        ...

    def share(self, loss: Loss, cap: Cap) -> Fraction:
        """The share of capacity used: 0 when empty, 1 when full, more when over."""
        ...

    def decisive(self, loss: Loss, cap: Cap) -> int | None:
        """The coordinate that decides whether a loss is admitted; None where an infinite charge does."""
        ...

    def runs(self, loss: Loss, cap: Cap, run: Loss) -> int:
        """How many more runs that cost ``run`` each still fit, if nobody else charges."""
        ...

    def odometer(self, loss: Loss) -> Fraction:
        """The anytime-valid ε of this loss at the partition's δ, rounded up. Raises: ArithmeticError."""
        ...

    def to_json(self) -> Object:
        """The terms, as the entry that opens the partition records them."""
        ...


def open_rule(  # noqa: PLR0913, PLR0917 - what a partition declares
    kind: str,
    delta: Fraction,
    caps: tuple[Fraction, ...],
    load: Mechanism | None,
    relation: str = "REPLACE_SPECIAL",
    slack: int = 0,
) -> Rule:
    """The rule for a new partition: good for its budget, for every cap its policy names, for its declared load.

    Args:
        caps: the ε of the partition's budget first, then of every other cap.
        slack: δ units kept for black boxes.

    Raises:
        Malformed: for an unknown kind of rule, or what the rule cannot be opened with.
        NotPriced: if the load has no proven price.
        NoRoom: if a cap has no room at any order.
    """
    rule = choose_rule(kind, delta, caps, load, relation, slack)
    for epsilon in caps:
        rule.cap(epsilon)
    return rule


def choose_rule(  # noqa: PLR0913, PLR0917 - as above
    kind: str,
    delta: Fraction,
    caps: tuple[Fraction, ...],
    load: Mechanism | None,
    relation: str = "REPLACE_SPECIAL",
    slack: int = 0,
) -> Rule:
    """The rule for a new partition, of which no cap was asked yet whether it has room. See :func:`open_rule`."""
    if kind != "renyi" and delta == 0:
        raise Malformed("rule", "must be 'renyi' for a budget with δ = 0")
    if slack and (kind == "reference" or delta == 0):
        raise Malformed("slack", "is for black boxes, which have no price in this rule")
    match kind:
        case "renyi":
            return Renyi.choose(delta, caps, load, relation, slack) if delta else PureSum()
        case "reference":
            return Reference.choose(delta, caps[0], load, relation)
        case "gaussian":
            return GaussianRule.choose(delta, caps[0], slack)
        case _:
            raise Malformed("rule", f"{kind!r} is not a rule")


_READERS: Final[dict[str, Callable[[object], Rule]]] = {
    "gaussian": GaussianRule.parse,
    "pure": PureSum.parse,
    "reference": Reference.parse,
    "renyi": Renyi.parse,
}


@lru_cache(maxsize=4_096)
def read_rule(terms: str) -> Rule:
    """The rule of an open partition from its recorded terms. Raises: Malformed."""
    value: Any = parse(terms.encode(), TERMS_BYTES_MAX, "terms")
    kind = one_of(value.get("kind") if isinstance(value, dict) else None, "terms.kind", tuple(_READERS))
    return _READERS[kind](value)


__all__ = ["Cap", "NoRoom", "Rule", "choose_rule", "open_rule", "read_rule"]
