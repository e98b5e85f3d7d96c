"""What ran, enough to account for it: our own tagged, versioned JSON for an allow-list of mechanisms.

The vocabulary is append-only and describes mechanisms, not their cost. It is never read with
``DpEvent.from_named_tuple``, which imports and calls whatever it is told to.

    {"kind": "poisson_gaussian", "noise_multiplier": "1.1", "probability": "1/186", "steps": 186, "v": 1}
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from ledger.canonical import Json, fields, integer
from ledger.malformed import Malformed
from ledger.units import format_number, parse_positive

STEPS_MAX: Final = 10_000_000
NOISE_MAX: Final = Fraction(1_000_000)
NOISE_MIN: Final = Fraction(1, 100)
PROBABILITY_MIN: Final = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class PoissonGaussian:
    """``steps`` adaptively composed Gaussian sums over independent Poisson samples.

    Each step: every record of the partition enters with ``probability``, contributions of norm at most 1 are
    summed, and Gaussian noise of standard deviation ``noise_multiplier`` is added. At probability 1 it is the
    plain Gaussian mechanism.
    """

    probability: Fraction
    noise_multiplier: Fraction
    steps: int

    def __post_init__(self) -> None:
        """Hold every value to the bounds within which pricing is proven and cheap. Raises: Malformed."""
        if not PROBABILITY_MIN <= self.probability <= 1:
            raise Malformed("probability", f"must lie between {format_number(PROBABILITY_MIN)} and 1")
        if not NOISE_MIN <= self.noise_multiplier <= NOISE_MAX:
            raise Malformed("noise_multiplier", f"must lie between {format_number(NOISE_MIN)} and {NOISE_MAX}")
        if not 1 <= self.steps <= STEPS_MAX:
            raise Malformed("steps", f"must lie between 1 and {STEPS_MAX}")

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read the tagged form; the exact inverse of :meth:`to_json`. Raises: Malformed."""
        known = fields(value, "", required=("kind", "noise_multiplier", "probability", "steps", "v"))
        if known["kind"] != "poisson_gaussian":
            raise Malformed("kind", f"{known['kind']!r} is not a mechanism this ledger can price")
        integer(known["v"], "v", 1, 1)
        return cls(
            probability=parse_positive(known["probability"], "probability"),
            noise_multiplier=parse_positive(known["noise_multiplier"], "noise_multiplier"),
            steps=integer(known["steps"], "steps", 1, STEPS_MAX),
        )

    def to_json(self) -> dict[str, Json]:
        """The tagged form."""
        return {
            "kind": "poisson_gaussian",
            "noise_multiplier": format_number(self.noise_multiplier),
            "probability": format_number(self.probability),
            "steps": self.steps,
            "v": 1,
        }
