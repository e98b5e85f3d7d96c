"""The smaller of two odometers at half of δ each is never beaten; with the whole of δ at either one it is."""

from dataclasses import dataclass
from functools import cache

from msgspec import structs

from ledger.filters.renyi import Renyi
from tests.ledger.filters.first_run_odometer import Claim, reached
from tests.ledger.filters.game import Charging
from tests.ledger.filters.renyi_trials import Trial, odometer, random_trial

WITHIN = 1 + 1e-9
TIGHT = 4, 5
"""A library and the one order at which Rényi's odometer is nearly tight on it."""


@dataclass(frozen=True)
class Telling:
    """Two odometers at their parts of δ, as a rule says or against it."""

    rule: Renyi
    share: float

    @classmethod
    def of(cls, rule: Renyi) -> "Telling":
        """As the rule says."""
        return cls(rule, float(rule.odometer_delta))

    def multiple(self, trial: Trial) -> float:
        """The most that is reached, in multiples of δ: two runs at once, three in all, whatever is admitted."""
        prices = [one.loss(self.rule.orders) for one in trial.mechanisms]
        charging = Charging.per_step(trial.runs, prices, lambda _: True)
        own = cache(lambda loss: odometer(self.rule, loss))
        most = reached(charging, trial.runs, trial.pairs, Claim(own, self.share), together=2, admissions=3)
        return most / float(self.rule.delta)


def test_random_libraries_never_beat_the_two_odometers() -> None:
    """With stops, refunds, voids and runs at once."""
    trials = [random_trial(seed) for seed in range(12)]
    assert 0.5 < max(Telling.of(one.rule).multiple(one) for one in trials) <= WITHIN


def test_a_library_on_which_the_rules_own_odometer_is_nearly_tight_does_not_either() -> None:
    """One order that has the whole of δ less the half that the first run's curve has."""
    seed, order = TIGHT
    trial = random_trial(seed)
    rule = Renyi(trial.rule.delta, (order,), (1_000,), 0, 2)
    assert 0.5 < Telling.of(rule).multiple(trial) <= WITHIN
    # The rule's own at all of δ, beside a curve at half.
    unhalved = Telling(structs.replace(rule, odometers=None), float(rule.odometer_delta))
    assert unhalved.multiple(trial) > 1.1


def test_the_whole_of_delta_for_the_first_run_alone_is_beaten() -> None:
    """Whatever is told of later runs: at half of δ, or at all of it as well."""
    trial = random_trial(0)
    delta = float(trial.rule.delta)
    assert Telling(trial.rule, delta).multiple(trial) > 1.1
    assert Telling(structs.replace(trial.rule, odometers=None), delta).multiple(trial) > 1.3
