"""What ran, enough to account for it: our own tagged, versioned JSON for an allow-list of mechanisms.

The vocabulary is append-only and describes mechanisms, not their cost. It is never read with
``DpEvent.from_named_tuple``, which imports and calls whatever it is told to.

    {"kind": "poisson_gaussian", "noise_multiplier": "1.1", "probability": "1/186", "steps": 186, "v": 1}
    {"k": 3, "kind": "group", "mechanism": {"kind": "gaussian", "noise_multiplier": "4", "v": 1}, "v": 1}

A noise multiplier is a standard deviation (for Laplace: a scale) over what one record can add: the sensitivity
under add-remove and zero-out neighbours. Under ``REPLACE_ONE`` the sensitivity is twice that.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import fields as fields_of
from fractions import Fraction
from typing import ClassVar, Final

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed

RELATIONS: Final = ("REPLACE_SPECIAL", "ADD_OR_REMOVE_ONE", "REPLACE_ONE")
SHAPES: Final = ("0", "1", "poisson")
STEPS_MAX: Final = 10_000_000
NOISE_MAX: Final = Fraction(1_000_000)
NOISE_MIN: Final = Fraction(1, 100)
PROBABILITY_MIN: Final = Fraction(1, 10**9)
GROUP_MAX: Final = 64

NUMBERS: Final[dict[str, tuple[Fraction, Fraction]]] = {
    "delta": (Fraction(1, 2**52), Fraction(1, 2)),
    "epsilon": (PROBABILITY_MIN, Fraction(256)),
    "mean": (Fraction(1), Fraction(1_000_000)),
    "noise": (Fraction(1, 10**6), Fraction(1)),
    "noise_multiplier": (NOISE_MIN, NOISE_MAX),
    "probability": (PROBABILITY_MIN, Fraction(1)),
    "rho": (Fraction(1, 10**12), Fraction(256)),
    "xi": (Fraction(0), Fraction(256)),
}
INTEGERS: Final[dict[str, tuple[int, int]]] = {
    "buckets": (2, 1_000_000),
    "count": (1, STEPS_MAX),
    "epochs": (1, STEPS_MAX),
    "k": (1, GROUP_MAX),
    "population": (1, 10**12),
    "sample": (1, 10**12),
    "steps": (1, STEPS_MAX),
}
WORDS: Final = {"relation": RELATIONS, "shape": SHAPES}


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One kind of the vocabulary. Every value is held to the bounds within which pricing is proven and cheap."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        """Hold every value to its bounds. Raises: Malformed."""
        for field in fields_of(self):
            bounds = NUMBERS.get(field.name) or INTEGERS.get(field.name)
            if bounds and not bounds[0] <= getattr(self, field.name) <= bounds[1]:
                least, most = (format_number(Fraction(bound)) for bound in bounds)
                raise Malformed(field.name, f"must lie between {least} and {most}")

    def to_json(self) -> c.Object:
        """The tagged form."""
        known: c.Object = {field.name: _written(getattr(self, field.name)) for field in fields_of(self)}
        return {**known, "kind": self.kind, "v": 1}


@dataclass(frozen=True, slots=True)
class Gaussian(Mechanism):
    """A sum with Gaussian noise."""

    kind: ClassVar = "gaussian"
    noise_multiplier: Fraction


@dataclass(frozen=True, slots=True)
class Laplace(Mechanism):
    """A sum with Laplace noise in each coordinate; the noise multiplier is its scale over the L1 sensitivity."""

    kind: ClassVar = "laplace"
    noise_multiplier: Fraction


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Mechanism):
    """A sum of integers with discrete Gaussian noise (Canonne, Kamath, Steinke 2020)."""

    kind: ClassVar = "discrete_gaussian"
    noise_multiplier: Fraction


@dataclass(frozen=True, slots=True)
class RandomisedResponse(Mechanism):
    """Each record answers by itself: with probability ``noise`` uniformly over the buckets, else the truth."""

    kind: ClassVar = "randomised_response"
    buckets: int
    noise: Fraction


@dataclass(frozen=True, slots=True)
class Zcdp(Mechanism):
    """Whatever is (ξ, ρ)-zCDP under ``relation`` (Bun, Steinke 2016, Definition 8.1)."""

    kind: ClassVar = "zcdp"
    relation: str
    rho: Fraction
    xi: Fraction


@dataclass(frozen=True, slots=True)
class Pure(Mechanism):
    """Whatever is ε-differentially private under ``relation``."""

    kind: ClassVar = "pure"
    epsilon: Fraction
    relation: str


@dataclass(frozen=True, slots=True)
class BlackBox(Mechanism):
    """Whatever is (ε, δ)-differentially private under ``relation``."""

    kind: ClassVar = "black_box"
    delta: Fraction
    epsilon: Fraction
    relation: str


@dataclass(frozen=True, slots=True)
class PoissonGaussian(Mechanism):
    """``steps`` adaptively composed Gaussian sums over independent Poisson samples.

    Each step: every record of the partition enters with ``probability``, contributions of norm at most 1 are
    summed, and Gaussian noise of standard deviation ``noise_multiplier`` is added. At probability 1 it is the
    plain Gaussian mechanism.
    """

    kind: ClassVar = "poisson_gaussian"
    probability: Fraction
    noise_multiplier: Fraction
    steps: int


@dataclass(frozen=True, slots=True)
class SampledWithoutReplacement(Mechanism):
    """``steps`` Gaussian sums, each over ``sample`` records drawn without replacement from ``population``."""

    kind: ClassVar = "sampled_without_replacement"
    noise_multiplier: Fraction
    population: int
    sample: int
    steps: int

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        Mechanism.__post_init__(self)
        if self.sample > self.population:
            raise Malformed("sample", "must be at most the population")


@dataclass(frozen=True, slots=True)
class FullBatchEpochs(Mechanism):
    """Epochs over shuffled or fixed batches: each charged as one Gaussian sum over all records."""

    kind: ClassVar = "full_batch_epochs"
    epochs: int
    noise_multiplier: Fraction


@dataclass(frozen=True, slots=True)
class Group(Mechanism):
    """The mechanism seen by a group of up to ``k`` records that change together: all of one user, say."""

    kind: ClassVar = "group"
    k: int
    mechanism: Mechanism


@dataclass(frozen=True, slots=True)
class RepeatAndSelect(Mechanism):
    """Tuning: run a secret, random number of times, release only the best (Papernot, Steinke 2022).

    The number has the given mean, and is truncated negative binomial of ``shape`` "0" (logarithmic) or "1"
    (geometric), or "poisson". Its score is part of each run. It runs as a whole or not at all.
    """

    kind: ClassVar = "repeat_and_select"
    mean: Fraction
    mechanism: Mechanism
    shape: str


@dataclass(frozen=True, slots=True)
class Composed(Mechanism):
    """One after another, each chosen beforehand."""

    kind: ClassVar = "composed"
    mechanisms: tuple[Mechanism, ...]


@dataclass(frozen=True, slots=True)
class SelfComposed(Mechanism):
    """The same, ``count`` times."""

    kind: ClassVar = "self_composed"
    count: int
    mechanism: Mechanism


_ALL: Final[tuple[type[Mechanism], ...]] = (
    Gaussian,
    Laplace,
    DiscreteGaussian,
    RandomisedResponse,
    Zcdp,
    Pure,
    BlackBox,
    PoissonGaussian,
    SampledWithoutReplacement,
    FullBatchEpochs,
    Group,
    RepeatAndSelect,
    Composed,
    SelfComposed,
)
KINDS: Final = {one.kind: one for one in _ALL}


def _written(value: Fraction | int | str | Mechanism | tuple[Mechanism, ...]) -> c.Json:
    if isinstance(value, Fraction):
        return format_number(value)
    if isinstance(value, Mechanism):
        return value.to_json()
    return [one.to_json() for one in value] if isinstance(value, tuple) else value
