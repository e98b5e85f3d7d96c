"""The noise of a job that states its ε: the least that keeps it, under the terms of every partition it names.

The charge decides by the same accountant, so what is chosen here is what a quote shows; if terms were misread here, the
charge would still cost what it costs.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Final

from client.service.registry_reads import unit_records
from client.service.service import Service
from ledger.accounting.calibration import NOISE_PLACES, least_noise
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import Mechanism, PoissonGaussian
from ledger.mechanisms.run_plan import RECORD, USER, RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.job.privacy_target import NO_CLIPPING, PrivacyTarget
from trainer_adapter.session.protocol import consumer_service
from trainer_adapter.session.slice_files import with_slices

_PLACES: Final = 6


def load_job(path: Path) -> Job:
    """A job whose plan is chosen if it states its ε. Raises: Malformed, Refused, Unreachable, OSError."""
    return Job.load(path, plan_for)


def load_assignment(path: Path) -> Assignment:
    """The same of an assignment, or of a job's. Raises: as :func:`load_job`."""
    return Assignment.load(path, plan_for)


def plan_for(target: PrivacyTarget, assignment: Assignment) -> RunPlan:
    """The plan that keeps a target. Raises: Malformed, Refused, Unreachable, OSError."""
    if target.clipping_norm is None:
        raise Malformed("train.privacy.clipping_norm", NO_CLIPPING)
    return trial_plan_for(target, assignment)


def trial_plan_for(target: PrivacyTarget, assignment: Assignment) -> RunPlan:
    """The same for a job that is only checked, with a clipping norm of 1 where it names none."""
    with consumer_service(assignment) as service:
        return choose_plan(target, assignment, service)


def choose_plan(target: PrivacyTarget, assignment: Assignment, service: Service) -> RunPlan:
    """The plan with the least noise that keeps ε on every partition. Raises: Malformed, Refused, Unreachable."""
    partitions = [service.partition(ref) for ref in with_slices(assignment, service).data]
    # Of a join the first partition has the places that records are drawn from.
    counted = partitions if assignment.join is None else [service.partition(assignment.join[0])]
    records = sum(c.integer(partition["records"], "records", 1, 10**12) for partition in counted)
    if target.batch_size_expected > records:
        rule = f"must be at most {records}: its partitions state no more records"
        raise Malformed("train.privacy.batch_size_expected", rule)
    # Rounded up, since a plan holds decimals: a record is drawn as often or more, and priced so.
    probability = min(Fraction(1), _ceil(Fraction(target.batch_size_expected, records)))
    # Many slices have few terms, and the noise of one is that of all alike.
    alike = {
        c.dump([partition["budget"], partition["relation"], partition["unit"], unit_records(partition)]): partition
        for partition in partitions
    }
    noise = [_noise(target, assignment, partition, probability) for partition in alike.values()]
    return target.plan(probability, max(noise), _relation(target, partitions))


def _noise(target: PrivacyTarget, assignment: Assignment, partition: c.Object, probability: Fraction) -> Fraction:
    group, budget = _group(target, assignment, partition), c.members(partition["budget"], "budget")
    relation = c.string(partition["relation"], "relation")

    def of(noise: int) -> Mechanism:
        if target.stages is not None:
            return group_privacy(group, target.plan(probability, Fraction(noise, NOISE_PLACES), relation).whole)
        return group_privacy(group, PoissonGaussian(probability, Fraction(noise, NOISE_PLACES), target.steps))

    delta = parse_number(budget["delta"], "delta")
    least = least_noise(of, target.epsilon, delta, relation)
    if least is None and target.stages is not None:
        rule = "cannot be kept beside what the statistics and metrics cost: raise it, or lower theirs"
        raise Malformed("train.privacy.epsilon", rule)
    if least is None:
        raise Malformed("train.privacy.epsilon", "cannot be kept by any permitted noise: raise it, or take fewer steps")
    return least


def _relation(target: PrivacyTarget, partitions: list[c.Object]) -> str:
    """The relation of all partitions, under which a statistic has its cost. Raises: Malformed, if they differ."""
    found = sorted({c.string(partition["relation"], "relation") for partition in partitions})
    if target.stages is not None and len(found) != 1:
        raise Malformed("train.privacy.statistics", f"hold under one relation, and the partitions have {found}")
    return found[0]


def _group(target: PrivacyTarget, assignment: Assignment, partition: c.Object) -> int:
    """How many of the plan's units change with one privacy unit of the partition. Raises: Malformed."""
    if target.unit == USER and partition["unit"] != USER:
        rule = f"is user, and the unit of {partition['partition']} is the {partition['unit']}: leave it out"
        raise Malformed("train.privacy.unit", rule)
    if target.unit == RECORD and partition["unit"] != RECORD and assignment.unit_records_max is None:
        rule = f"is missing: the unit of {partition['partition']} is the {partition['unit']}; or say unit_records_max"
        raise Malformed("train.privacy.unit", rule)
    joined = assignment.unit_records_max or 1
    return max(unit_records(partition), joined) if target.unit == RECORD else joined


def _ceil(number: Fraction) -> Fraction:
    return Fraction(-(-number.numerator * 10**_PLACES // number.denominator), 10**_PLACES)
