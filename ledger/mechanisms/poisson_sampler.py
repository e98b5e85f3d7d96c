"""How a plan of DP-SGD states its sampler: true Poisson sampling, by its probability.

{"kind": "poisson", "probability": "16/175"}
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from ledger.wire.field_types import Positive, constant, register_type, rule
from ledger.wire.json_schema import json_schema
from ledger.wire.records import Record, convert


class PoissonSampler(Record, frozen=True):
    """True Poisson sampling: every record enters every step by itself, with one probability."""

    probability: Positive
    kind: Annotated[Literal["poisson"], rule("must be 'poisson': shuffled or fixed batches get no amplification")] = (
        constant("poisson")
    )


class PoissonProbability(Fraction):
    """A probability that is written as the sampler that draws with it."""


register_type(
    PoissonProbability,
    lambda value: PoissonProbability(convert(PoissonSampler, value).probability),
    lambda value: PoissonSampler(Fraction(value)),
    json_schema(PoissonSampler),
)
