"""The admission rules, behind one small interface. A partition's rule is fixed for life."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from ledger.canonical import Object, parse
from ledger.loss import Loss, Price
from ledger.malformed import Malformed
from ledger.mechanism import PoissonGaussian
from ledger.rules.renyi import Cap, NoRoom, Renyi

TERMS_BYTES_MAX = 8_192


class Rule(Protocol):
    """How charges are admitted on one partition.

    A loss has one integer per coordinate. A cap is a bound (ε, δ) as integers: its capacity. Every test is
    monotone in the loss, so settling in any order stays sound.
    """

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        ...

    def price(self, mechanism: PoissonGaussian) -> Price:
        """What one step costs. Raises: Malformed, for a mechanism or noise without a proven price."""
        ...

    def cap(self, epsilon: Fraction) -> Cap:
        """The capacity under which the loss keeps (ε, the partition's δ). Raises: NoRoom."""
        ...

    def admits(self, loss: Loss, cap: Cap) -> bool:
        """Whether the bound still holds at this loss."""
        ...

    def share(self, loss: Loss, cap: Cap) -> Fraction:
        """The share of capacity used: 0 when empty, 1 when full, more when over."""
        ...

    def runs(self, loss: Loss, cap: Cap, run: Loss) -> int:
        """How many more runs that cost ``run`` each still fit, if nobody else charges."""
        ...

    def odometer(self, loss: Loss) -> Fraction:
        """The anytime-valid ε of this loss at the partition's δ, rounded up."""
        ...

    def to_json(self) -> Object:
        """The terms, as the entry that opens the partition records them."""
        ...


def open_rule(kind: str, delta: Fraction, caps: tuple[Fraction, ...], load: PoissonGaussian | None) -> Rule:
    """The rule for a new partition: good for its budget, for every cap its policy names, for its declared load.

    Args:
        caps: the ε of the partition's budget first, then of every other cap.

    Raises:
        Malformed: for an unknown kind of rule.
        NoRoom: if a cap has no room at any order.
    """
    if kind != "renyi":
        raise Malformed("rule", f"{kind!r} is not a rule")
    return Renyi.choose(delta, caps, load)


def read_rule(terms: str) -> Rule:
    """The rule of an open partition from its recorded terms. Raises: Malformed."""
    return Renyi.parse(parse(terms.encode(), TERMS_BYTES_MAX, "terms"))


__all__ = ["Cap", "NoRoom", "Rule", "open_rule", "read_rule"]
