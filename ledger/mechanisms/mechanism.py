"""Mechanisms: what ran, described well enough to account for it, as tagged, versioned JSON from an allow-list.

The vocabulary is append-only and describes mechanisms, not their cost. It is never read with
``DpEvent.from_named_tuple``, which imports and calls any name it is given.

    {"kind": "poisson_gaussian", "noise_multiplier": "1.1", "probability": "1/186", "steps": 186, "v": 1}
    {"k": 3, "kind": "group", "mechanism": {"kind": "gaussian", "noise_multiplier": "4", "v": 1}, "v": 1}

A noise multiplier is a standard deviation (for Laplace: a scale) over what one record can add: the sensitivity
under add-remove and zero-out neighbours. Under ``REPLACE_ONE`` the sensitivity is twice that.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from msgspec import Meta, inspect

from ledger.wire.field_types import between, constant, exact, rule, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

RELATIONS: Final = ("REPLACE_SPECIAL", "ADD_OR_REMOVE_ONE", "REPLACE_ONE")
SHAPES: Final = ("0", "1", "poisson")
STEPS_MAX: Final = 10_000_000
NOISE_MAX: Final = Fraction(1_000_000)
NOISE_MIN: Final = Fraction(1, 100)
PROBABILITY_MIN: Final = Fraction(1, 10**9)
GROUP_MAX: Final = 64

LEAVES_MAX: Final = 16
"""The most mechanisms inside one, each priced by itself, so that pricing ends soon."""

Relation = Annotated[str, words(*RELATIONS)]
Noise = Annotated[Fraction, exact(NOISE_MIN, NOISE_MAX)]
"""A noise multiplier."""
Epsilon = Annotated[Fraction, exact(PROBABILITY_MIN, Fraction(256))]
Delta = Annotated[Fraction, exact(Fraction(1, 2**52), Fraction(1, 2))]
Probability = Annotated[Fraction, exact(PROBABILITY_MIN, Fraction(1))]
Steps = Annotated[int, between(1, STEPS_MAX)]
Records = Annotated[int, between(1, 10**12)]


class Mechanism(Record, frozen=True, kw_only=True, tag_field="kind"):
    """One kind of the vocabulary. Every value must lie within the bounds in which pricing is proven and cheap."""

    v: Literal[1] = constant(1)

    def __post_init__(self) -> None:
        """Check every value against its bounds, also for a mechanism built by a program. Raises: Malformed."""
        super().__post_init__()
        for name, least, most in _integer_bounds(type(self)):
            if not least <= getattr(self, name) <= most:
                raise Malformed(name, f"must lie between {least} and {most}")

    @property
    def kind(self) -> str:
        """Its name in the vocabulary."""
        return kind_of(type(self))


def kind_of(mechanism: type[Mechanism]) -> str:
    """The name of a class of mechanisms in the vocabulary."""
    return str(mechanism.__struct_config__.tag)


@lru_cache(maxsize=64)
def _integer_bounds(kind: type[Mechanism]) -> tuple[tuple[str, int, int], ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    whole = ((field.name, field.type) for field in info.fields)
    return tuple((name, int(at.ge or 0), int(at.le or 0)) for name, at in whole if isinstance(at, inspect.IntType))


class Gaussian(Mechanism, frozen=True, tag="gaussian"):
    """A sum with Gaussian noise."""

    noise_multiplier: Noise


class Laplace(Mechanism, frozen=True, tag="laplace"):
    """A sum with Laplace noise in each coordinate; the noise multiplier is its scale over the L1 sensitivity."""

    noise_multiplier: Noise


class DiscreteGaussian(Mechanism, frozen=True, tag="discrete_gaussian"):
    """A sum of integers with discrete Gaussian noise (Canonne, Kamath, Steinke 2020)."""

    noise_multiplier: Noise


class RandomisedResponse(Mechanism, frozen=True, tag="randomised_response"):
    """Each record answers by itself: with probability ``noise`` uniformly over the buckets, else the truth."""

    buckets: Annotated[int, between(2, 1_000_000)]
    noise: Annotated[Fraction, exact(Fraction(1, 10**6), Fraction(1))]


class Zcdp(Mechanism, frozen=True, tag="zcdp"):
    """Any mechanism that is (ξ, ρ)-zCDP under ``relation`` (Bun, Steinke 2016, Definition 8.1)."""

    relation: Relation
    rho: Annotated[Fraction, exact(Fraction(1, 10**12), Fraction(256))]
    xi: Annotated[Fraction, exact(Fraction(0), Fraction(256))]


class Pure(Mechanism, frozen=True, tag="pure"):
    """Any mechanism that is ε-differentially private under ``relation``."""

    epsilon: Epsilon
    relation: Relation


class GaussianPrivate(Mechanism, frozen=True, tag="gdp"):
    """Any μ-Gaussian differentially private mechanism under ``relation`` (Dong, Roth, Su 2022, Definition 2.6)."""

    mu_square: Annotated[Fraction, exact(1 / NOISE_MAX**2, NOISE_MAX)]
    relation: Relation


class BoundedRange(Mechanism, frozen=True, tag="bounded_range"):
    """Any mechanism of ε-bounded range under ``relation``: an exponential one (Durfee, Rogers 2019, Definition 3)."""

    epsilon: Epsilon
    relation: Relation


class BlackBox(Mechanism, frozen=True, tag="black_box"):
    """Any mechanism that is (ε, δ)-differentially private under ``relation``."""

    delta: Delta
    epsilon: Epsilon
    relation: Relation


class PoissonGaussian(Mechanism, frozen=True, tag="poisson_gaussian"):
    """``steps`` adaptively composed Gaussian sums over independent Poisson samples.

    Each step: every record of the partition enters with ``probability``, contributions of norm at most 1 are
    summed, and Gaussian noise of standard deviation ``noise_multiplier`` is added. At probability 1 it is the
    plain Gaussian mechanism.
    """

    probability: Probability
    noise_multiplier: Noise
    steps: Steps


class SampledWithoutReplacement(Mechanism, frozen=True, tag="sampled_without_replacement"):
    """``steps`` Gaussian sums, each over ``sample`` records drawn without replacement from ``population``."""

    noise_multiplier: Noise
    population: Records
    sample: Records
    steps: Steps

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        if self.sample > self.population:
            raise Malformed("sample", "must be at most the population")


class FullBatchEpochs(Mechanism, frozen=True, tag="full_batch_epochs"):
    """Epochs over shuffled or fixed batches: each charged as one Gaussian sum over all records."""

    epochs: Steps
    noise_multiplier: Noise


class Group(Mechanism, frozen=True, tag="group"):
    """The mechanism seen by a group of up to ``k`` records that change together: all of one user, say."""

    k: Annotated[int, between(1, GROUP_MAX)]
    mechanism: AnyMechanism


class RepeatAndSelect(Mechanism, frozen=True, tag="repeat_and_select"):
    """Tuning: run a secret, random number of times, release only the best (Papernot, Steinke 2022).

    The number has the given mean, and is truncated negative binomial of ``shape`` "0" (logarithmic) or "1"
    (geometric), or "poisson". Its score is part of each run. It runs as a whole or not at all.
    """

    mean: Annotated[Fraction, exact(Fraction(1), Fraction(1_000_000))]
    mechanism: AnyMechanism
    shape: Annotated[str, words(*SHAPES)]


class Composed(Mechanism, frozen=True, tag="composed"):
    """Mechanisms one after another, each chosen beforehand."""

    mechanisms: Annotated[tuple[AnyMechanism, ...], Meta(min_length=1, max_length=LEAVES_MAX)]


class SelfComposed(Mechanism, frozen=True, tag="self_composed"):
    """One mechanism, ``count`` times."""

    count: Steps
    mechanism: AnyMechanism


_ALL = (
    Gaussian
    | Laplace
    | DiscreteGaussian
    | RandomisedResponse
    | Zcdp
    | Pure
    | GaussianPrivate
    | BoundedRange
    | BlackBox
    | PoissonGaussian
    | SampledWithoutReplacement
    | FullBatchEpochs
    | Group
    | RepeatAndSelect
    | Composed
    | SelfComposed
)
if TYPE_CHECKING:
    AnyMechanism = Mechanism
else:
    # Parsed as one of the closed list by its kind; a program may use any.
    AnyMechanism = Annotated[_ALL, rule("is not a mechanism this ledger knows")]
KINDS: Final[dict[str, type[Mechanism]]] = {
    kind_of(mechanism_type): mechanism_type for mechanism_type in get_args(_ALL)
}
