"""A job's privacy stated by its ε: what the run may reveal, and everything of its plan but the noise.

    [train.privacy]
    epsilon = "1.5"
    batch_size_expected = 64
    clipping_norm = "1"
    steps = 200

The noise is the least that keeps ε under the terms of each partition: its δ, relation, unit and number of records. Each
record enters a step with probability ``batch_size_expected`` / records.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from ledger.mechanisms.plan import BATCH_MAX, CLIPPING_MAX, Plan
from ledger.mechanisms.run_plan import RECORD, USER
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import EPSILON_MAX, parse_positive
from ledger.wire.malformed import Malformed

STEPS_MAX: Final = 1_000_000
_NEEDED: Final = ("batch_size_expected", "epsilon", "steps")
NO_CLIPPING: Final = "is missing: `epsilon job check` recommends one from the public test set"


@dataclass(frozen=True, slots=True)
class PrivacyTarget:
    """What a plan has to keep.

    Attributes:
        clipping_norm: None where the job names none yet: it can be checked so, and not run.
        unit: what is drawn and clipped.
    """

    epsilon: Fraction
    batch_size_expected: int
    clipping_norm: Fraction | None
    steps: int
    unit: str = RECORD

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read the table. Raises: Malformed, naming the field."""
        members = c.fields(value, where, _NEEDED, ("clipping_norm", "unit"))
        epsilon = parse_positive(members["epsilon"], f"{where}.epsilon")
        if epsilon > EPSILON_MAX:
            raise Malformed(f"{where}.epsilon", f"must be at most {EPSILON_MAX}")
        clipping = None
        if "clipping_norm" in members:
            clipping = parse_positive(members["clipping_norm"], f"{where}.clipping_norm")
        if clipping is not None and clipping > CLIPPING_MAX:
            raise Malformed(f"{where}.clipping_norm", f"must be at most {CLIPPING_MAX}")
        return cls(
            epsilon,
            c.integer(members["batch_size_expected"], f"{where}.batch_size_expected", 1, BATCH_MAX),
            clipping,
            c.integer(members["steps"], f"{where}.steps", 1, STEPS_MAX),
            c.one_of(members.get("unit", RECORD), f"{where}.unit", (RECORD, USER)),
        )

    @property
    def placeholder(self) -> Plan:
        """A plan in the place of the real one."""
        return self.plan(Fraction(1), Fraction(1))

    def plan(self, probability: Fraction, noise: Fraction) -> Plan:
        """The plan with this sampling probability and noise multiplier. Raises: Malformed."""
        return Plan(
            probability, noise, self.clipping_norm or Fraction(1), self.steps, self.batch_size_expected, self.unit
        )
