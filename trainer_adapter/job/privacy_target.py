"""A job's privacy stated by its ε: what the run may reveal, and everything of its plan but the noise.

    [train.privacy]
    epsilon = "1.5"
    batch_size_expected = 64
    clipping_norm = "1"
    steps = 200

With ``statistics``, ``metrics`` and ``held_out``, as a plan of stages has them, ε is of all stages together. What they
cost is theirs, and the training has the rest.

The noise is the least that keeps ε under the terms of each partition: its δ, relation, unit and number of records. Each
record enters a step with probability ``batch_size_expected`` / records.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from ledger.mechanisms.plan import BATCH_MAX, CLIPPING_MAX, Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.price_proofs import ZERO_OUT
from ledger.mechanisms.run_plan import RECORD, USER, RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import EPSILON_MAX, parse_positive
from ledger.wire.malformed import Malformed

STEPS_MAX: Final = 1_000_000
STAGES: Final = ("held_out", "metrics", "statistics", "tables")
_NEEDED: Final = ("batch_size_expected", "epsilon", "steps")
NO_CLIPPING: Final = "is missing: `epsilon job check` recommends one from the public test set"


@dataclass(frozen=True, slots=True)
class PrivacyTarget:
    """What a plan has to keep.

    Attributes:
        clipping_norm: None where the job names none yet: it can be checked so, and not run.
        unit: what is drawn and clipped.
        stages: the members of a plan of stages beside its training and its relation; None of a training alone.
    """

    epsilon: Fraction
    batch_size_expected: int
    clipping_norm: Fraction | None
    steps: int
    unit: str = RECORD
    stages: c.Object | None = None

    @classmethod
    def parse(cls, value: object, where: str) -> Self:
        """Read the table. Raises: Malformed, naming the field."""
        members = c.fields(value, where, _NEEDED, ("clipping_norm", "unit", *STAGES))
        epsilon = parse_positive(members["epsilon"], f"{where}.epsilon")
        if epsilon > EPSILON_MAX:
            raise Malformed(f"{where}.epsilon", f"must be at most {EPSILON_MAX}")
        clipping = None
        if "clipping_norm" in members:
            clipping = parse_positive(members["clipping_norm"], f"{where}.clipping_norm")
        if clipping is not None and clipping > CLIPPING_MAX:
            raise Malformed(f"{where}.clipping_norm", f"must be at most {CLIPPING_MAX}")
        stages: c.Object = {name: members[name] for name in STAGES if name in members}
        target = cls(
            epsilon,
            c.integer(members["batch_size_expected"], f"{where}.batch_size_expected", 1, BATCH_MAX),
            clipping,
            c.integer(members["steps"], f"{where}.steps", 1, STEPS_MAX),
            c.one_of(members.get("unit", RECORD), f"{where}.unit", (RECORD, USER)),
            stages or None,
        )
        try:
            _ = target.placeholder
        except Malformed as error:
            raise error.under(where) from None
        return target

    @property
    def placeholder(self) -> RunPlan:
        """A plan in the place of the real one. Raises: Malformed."""
        return self.plan(Fraction(1), Fraction(1), ZERO_OUT)

    def plan(self, probability: Fraction, noise: Fraction, relation: str) -> RunPlan:
        """The plan with this sampling probability and noise multiplier, under a relation. Raises: Malformed."""
        training = Plan(
            probability, noise, self.clipping_norm or Fraction(1), self.steps, self.batch_size_expected, self.unit
        )
        if self.stages is None:
            return training
        staged: c.Object = {"kind": "staged", "relation": relation, "training": training.to_json(), "v": 1}
        return parse_plan({**self.stages, **staged})
