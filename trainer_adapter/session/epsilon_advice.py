"""What a refused job that states its ε may state instead: with other steps its noise would be chosen anew."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from client.http.problems import Refused, Unreachable
from client.service.service import Service
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.domain.exit_codes import ExitCode
from ledger.mechanisms.mechanism import Mechanism, PoissonGaussian
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number, parse_number
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment

_PLACES: Final = 1_000
_ANEW: Final = (
    "the noise follows from the job's ε: the number of steps that would fit is at the noise of this plan only"
)
_NOT_ENTERED: Final = (
    "Nothing was recorded: the contract that the job names was not entered. Enter it (`epsilon contract enter`), or "
    "name the very file that was."
)


def advise(refused: Refused, service: Service, assignment: Assignment, charge: c.Object) -> None:
    """Add lines for people to the refusal of a charge, whose body is ``charge``.

    Of its noise none where the job states its plan.
    """
    if refused.field == "body.contract" and refused.exit_code == ExitCode.NOT_FOUND:
        refused.next_step = _NOT_ENTERED
    if assignment.target is None or refused.exit_code != ExitCode.REFUSED:
        return
    try:
        epsilon = _epsilon_that_passes(service, assignment, charge)
    except (Malformed, NotPriced, Refused, Unreachable):
        # The refusal itself is what has to be reported.
        epsilon = Fraction(0)
    named = 0 < epsilon < assignment.target.epsilon
    passes = (f"would pass: train.privacy.epsilon of at most {format_number(epsilon)}",) if named else ()
    refused.advice = (_ANEW, *passes)


def _epsilon_that_passes(service: Service, assignment: Assignment, charge: c.Object) -> Fraction:
    """An ε for which the noise that is chosen is at least what would be admitted; 0 where none is known.

    The noise is the greatest that any partition needs, so the greatest ε that the admitted noise has on one is enough.
    """
    if assignment.unit_records_max is not None or assignment.join is not None:
        # What groups of records lose takes too long to search for the noise that would be admitted.
        return Fraction(0)
    plan = assignment.training
    # With everything that the charge says: of one that leases no steps a policy may say no, whatever its noise.
    advice = service.plan_report({**charge, "plan": plan.to_json()}).get("advice")
    noise = advice.get("noise_multiplier") if isinstance(advice, dict) else None
    if noise is None:
        return Fraction(0)
    run = PoissonGaussian(plan.sampling_probability, parse_number(noise, "noise_multiplier"), plan.steps)
    epsilon = max(_epsilon_on(run, service.partition(ref)) for ref in assignment.data)
    return Fraction(int(epsilon * _PLACES), _PLACES)


def _epsilon_on(run: Mechanism, partition: c.Object) -> Fraction:
    delta = parse_number(c.members(partition["budget"], "budget")["delta"], "delta")
    return reported_epsilon(run, delta, c.string(partition["relation"], "relation"))
