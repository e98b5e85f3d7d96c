"""Tuning: a secret random number of trials run, and only the best leaves; what one changed record costs.

    {"kind": "tuning", "training": {"kind": "dp_sgd", ...}, "trials": {"law": "poisson", "mean": "10", "most": 34},
     "v": 1}

Trials are judged on public data, or by a statistic of records that none of them trains on. Such a score is part of each
trial, and each trial costs both:

    "score": {"held_out": "0.25", "metric": {"buckets": 16, "epsilon": "0.2", "kind": "roc_curve", ...},
              "relation": "REPLACE_SPECIAL"}

Papernot, Steinke 2022 ("Hyperparameter tuning with Rényi differential privacy"): the number K of trials is drawn
from a declared law, is secret, and depends on no record. Theorems 2 and 6 price laws without a greatest value, and a
clean room has to end: here a K above ``most`` counts as no trial at all, so that a fixed default leaves.

Why the cut costs next to nothing. Let f be the generating function of K, and F that of the cut one: F' has the terms of
f' up to q^(most - 1). Each trial's output y is the best with probability f(Q(≤y)) - f(Q(<y)), the integral of f'
between these two, and the cut takes F' there. For every q in [0, 1] it holds that (1 - s)·f'(q) ≤ F'(q) ≤ f'(q), where
s = E[K; K > most] / E[K]: the omitted share of f'(q) grows with q, and is s at q = 1. So every output but the default
has a probability within [1 - s, 1] of the theorems', under both neighbours, and the default's grows by
t = P[K > most] under both. With S = e^((λ-1)·D) of the theorem, which is at least 1, the cut has at most
(1 - s)^(1-λ)·S + t, so at most D + log(1/(1 - s)) + t/(λ - 1) as divergence. Both theorems hold log E[K]/(λ - 1) and
fall in no other term as the mean grows, so a charge at the mean E[K]·e^((λ-1)·2s + t) covers it. The orders that this
ledger prices at are at most :data:`ORDER_MAX`, and t is at most s, so the mean is charged times e^(2·ORDER_MAX·s).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Final, Literal

from ledger.mechanisms.mechanism import Composed, Mechanism, Relation, RepeatAndSelect
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.mechanisms.statistic_prices import mechanism_of
from ledger.mechanisms.statistics import (
    OF_MODELS,
    AnyStatistic,
    AreaUnderCurve,
    ConfusionMatrix,
    RocCurve,
    SquaredError,
    columns_of,
)
from ledger.wire.field_types import between, constant, exact, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

POISSON: Final = "poisson"
GEOMETRIC: Final = "geometric"
LAWS: Final = (POISSON, GEOMETRIC)
TRIALS_MAX: Final = 10_000
"""The most trials that a run may hold."""
MEAN_MAX: Final = 100
"""Up to it a draw from 256 random bits errs by less than 1e-30 of every probability that counts."""
ORDER_MAX: Final = 256
"""The greatest Rényi order at which anything is priced."""
CUT_MAX: Final = 1e-8
"""The share of trials, in the mean, that the cut at ``most`` may take from a law."""
_SHAPES: Final = {POISSON: "poisson", GEOMETRIC: "1"}
_PLACES: Final = 10**12
"""A charged mean is rounded up to so many parts."""
_ROUNDING: Final = 1 + 1e-9
"""More than floating point can err by in the few operations of a tail."""


class Trials(Record, frozen=True):
    """How many trials run: drawn from a law, and none if more than ``most`` were drawn.

    Attributes:
        law: ``poisson``, or ``geometric``: the truncated negative binomial of shape 1.
        mean: of the law.
        most: the room takes as long as so many trials do, whatever was drawn.
    """

    law: Annotated[str, words(*LAWS)]
    mean: Annotated[Fraction, exact(Fraction(1), Fraction(MEAN_MAX))]
    most: Annotated[int, between(1, TRIALS_MAX)]

    def __post_init__(self) -> None:
        """Hold the greatest number to the law. Raises: Malformed."""
        super().__post_init__()
        if cut_share(self.law, self.mean, self.most) > CUT_MAX:
            least = next(n for n in range(1, TRIALS_MAX * 8) if cut_share(self.law, self.mean, n) <= CUT_MAX)
            if least > TRIALS_MAX:
                raise Malformed("mean", f"needs {least} trials at the most, and a run may hold {TRIALS_MAX}")
            raise Malformed("most", f"must be at least {least}: fewer would cut off what the price of the law covers")


def cut_share(law: str, mean: Fraction, most: int) -> float:
    """The share s = E[K; K > most] / E[K], rounded up; where it is at most ``CUT_MAX`` P[K > most] is no greater."""
    if law == GEOMETRIC:
        # With γ = 1/mean: (1 - γ)^most · (most + 1/γ) · γ.
        rate = 1 / float(mean)
        share = math.exp(most * math.log1p(-rate)) * (most * rate + 1) if rate < 1 else 0.0
        return min(1.0, share * _ROUNDING)
    # P[K ≥ most], since k·p(k) = μ·p(k - 1): from there on each term is at most μ/(most + 1) of the one before.
    expected = float(mean)
    if most + 1 <= expected:
        return 1.0
    first = math.exp(most * math.log(expected) - expected - math.lgamma(most + 1))
    return min(1.0, first / (1 - expected / (most + 1)) * _ROUNDING)


def charged_mean(law: str, mean: Fraction, most: int) -> Fraction:
    """The mean of the law without a greatest value whose price covers this one, cut: a little above its own."""
    share = cut_share(law, mean, most)
    more = Fraction(math.expm1(2 * ORDER_MAX * share) * _ROUNDING)
    return Fraction(math.ceil(mean * (1 + more) * _PLACES), _PLACES)


class TrialScore(Record, frozen=True):
    """A score that is private: a statistic, with its noise, of the trial's model on records that no trial trains on.

    Attributes:
        held_out: the share of the records that do not train.
        metric: a confusion matrix (judged by the records that it has right), an area under the ROC curve, or the
            squared error of a regression, the less the better.
        relation: under which the metric has its stated cost.
    """

    held_out: Annotated[Fraction, exact(below=Fraction(1), positive=True)]
    metric: AnyStatistic
    relation: Relation

    def __post_init__(self) -> None:
        """Hold the metric to what a trial can be judged by. Raises: Malformed."""
        super().__post_init__()
        if not isinstance(self.metric, ConfusionMatrix | RocCurve | AreaUnderCurve | SquaredError):
            rule = "must be a confusion_matrix, a roc_curve, an area_under_curve or a squared_error: one number"
            raise Malformed("metric", rule)
        if not columns_of(self.metric)[1].startswith(OF_MODELS):
            raise Malformed("metric", f"must be of what the model gives: {' or '.join(OF_MODELS)}")


def tuning_mechanism(trials: Trials, trial: Mechanism) -> Mechanism:
    """What so many trials of a mechanism are charged as: private selection, at a mean that covers the cut."""
    mean = charged_mean(trials.law, trials.mean, trials.most)
    return RepeatAndSelect(mean, trial, _SHAPES[trials.law])


class TuningPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="tuning"):
    """A run of trials, of which the best leaves; it is one step.

    Attributes:
        training: the trial that costs most: no other samples with a greater probability, adds less noise or takes more
            steps.
        trials: how many there are.
        score: by which trials are judged; None: on public data. Each trial is then its training and its score,
            composed, as if each read every record.
    """

    training: Plan
    trials: Trials
    score: TrialScore | None = None
    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Hold the score to the training. Raises: Malformed."""
        super().__post_init__()
        if self.score is not None and self.training.unit != RECORD:
            raise Malformed("training.unit", f"is {self.training.unit}: a private score is over records")

    @cached_property
    def trial(self) -> Mechanism:
        """One trial: its training, and its score where that is private."""
        if self.score is None:
            return self.training.whole
        return Composed((self.training.whole, mechanism_of(self.score.metric, self.score.relation)))

    @cached_property
    def whole(self) -> Mechanism:
        """All trials, as one selection."""
        return tuning_mechanism(self.trials, self.trial)

    @property
    def steps(self) -> int:
        """One: a selection runs as a whole or not at all."""
        return 1

    @property
    def unit(self) -> str:
        """That of each trial."""
        return self.training.unit
