"""Whether a run like the last one may be charged again, to the last digit of its ε."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ledger.accounts.pricing import COMPUTED
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.decisions.documents_in_force import binding
from policy.decisions.last_run import LastRun, LastRunBounds
from tests.factories.documented import PLAN, opened
from tests.factories.memory import ref_of
from tests.factories.people import BANKS

BILLIONTH = Fraction(1, 10**9)


def test_a_run_of_exactly_the_most_may_be_charged_again() -> None:
    """A billionth less bars it, and says by how much and who says so."""
    market = opened()
    partition, run = market.state.partitions[ref_of("one")], LastRun(Loss.zero(4), parse_plan(PLAN))
    epsilon = COMPUTED.epsilon(partition, run)
    binds = binding(market.state, partition, market.clock.now)
    assert binds is not None
    for version, most in ((2, epsilon), (3, epsilon - BILLIONTH)):
        digest = market.contract_of(BANKS[0], version=version, run={"epsilon_max": format_number(most)})
        contract = market.state.contracts[digest]
        said = LastRunBounds(market.state, partition, binds, contract, market.clock.now).why_none(run)
        assert market.ask(PLAN, digest=digest).is_admitted == (not said) == (version == 2)
    assert said == (
        f"one run has an ε of at most {format_number(epsilon - BILLIONTH)}, and such a run {ceil_decimal(epsilon, 4)}, "
        f"by contract {contract.id} version 3"
    )


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"steps_max": 40, "noise_multiplier_min": "2"}, ""),
        ({"steps_max": 39}, "a run has at most 39 steps, by contract"),
        ({"noise_multiplier_min": "2.0001"}, "noise"),
    ],
)
def test_a_run_at_its_bounds_may_be_charged_again(run: dict[str, Any], said: str) -> None:
    """Of 40 steps with noise 2: at most so many steps, and at least so much noise."""
    market = opened()
    partition = market.state.partitions[ref_of("one")]
    binds = binding(market.state, partition, market.clock.now)
    assert binds is not None
    contract = market.state.contracts[market.contract_of(BANKS[0], version=2, run={"epsilon_max": "2.5", **run})]
    last = LastRun(Loss.zero(4), parse_plan(PLAN))
    found = LastRunBounds(market.state, partition, binds, contract, market.clock.now).why_none(last)
    assert market.ask(PLAN, digest=contract.document).is_admitted == (not found)
    assert (said in found, bool(said)) == (True, bool(found))
