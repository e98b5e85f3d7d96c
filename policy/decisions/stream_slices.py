"""Policy decisions on streams, entered by their provider within the policy, and on slices, in order and fresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice, pairwise, takewhile
from typing import Final

from ledger.commands.registration.document import EnterDocument
from ledger.commands.registration.partition import OpenPartition
from ledger.commands.registration.stream import STREAM
from ledger.domain.facts import Facts, Partition
from ledger.domain.gate import Header
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from policy.checks.calendar_periods import BY_HAND, EXAMPLES, period_before, period_of, periods_from, span_of, start_of
from policy.decisions.documents_in_force import policy_in_force, read_dataset, read_policy
from policy.decisions.request import Case, on
from policy.decisions.streams_in_force import (
    read_stream,
    slice_terms,
    slices_of,
    stored_commitments,
    stream_in_force,
)
from policy.documents.partition_commitments import Stored, persons_beyond, read_commitments
from policy.documents.policy import Policy
from policy.documents.stream import COMMITTED, StreamDocument

_MISSED_MAX: Final = 20
"""How many missed periods a check names."""
_GAP_MAX: Final = 10_000
"""How many missed periods are counted between two slices."""


def stream(case: Case, body: EnterDocument) -> None:
    """Decide a version of a dataset's stream: by its provider, in order, within the policy in force."""
    document = case.document(body.document, read_stream)
    if document is None:
        return
    source, provider = document.source, document.provider
    case.equal("actor_not_provider", "actor", case.actor, provider, source)
    case.signed_by((provider,), source)
    case.header = Header("stream", document.dataset, document.version, providers=(provider,))
    earlier = stream_in_force(case.facts, provider, document.dataset)
    expected = earlier.version + 1 if earlier else 1
    case.equal("version_not_next", f"version of the stream {document.dataset}", document.version, expected, source)
    if earlier is not None:
        _check_promise(case, document, earlier)
    dataset = case.facts.datasets.get((provider, document.dataset))
    registered = case.exists("dataset_unknown", dataset, f"{provider}/{document.dataset}", "registered", source)
    if registered is None:
        return
    described = read_dataset(case.facts.documents[registered.document])
    case.equal("unit_not_described", "unit", document.unit, described.unit, described.source)
    in_force = policy_in_force(case.facts, registered.domain, case.now)
    version = case.exists("policy_missing", in_force, f"domain {registered.domain}", "under a policy in force")
    if version is not None:
        _check_policy(case, document, read_policy(case.facts.documents[version.document]))


def _check_promise(case: Case, document: StreamDocument, earlier: StreamDocument) -> None:
    """Check that the slices of earlier versions, open or retired, satisfy what a version states about persons.

    The number of slices that a person may be in is fixed for a stream. With more, open slices would hold too large
    parts of the budget; with fewer, a person may be in too many slices already.
    """
    subject = "the number of slices that a person may be in,"
    now, before = document.appearances_max, earlier.appearances_max
    case.count_at_most("appearances_raised", subject, now, before, earlier.source)
    case.at_least("appearances_lowered", subject, Fraction(now), Fraction(before), earlier.source)
    # Slices without commitments cannot show that a person in a new slice is old.
    unbroken = document.persons != COMMITTED or earlier.persons == COMMITTED
    why = (
        "" if unbroken else ": the earlier slices may lack commitments to persons; what is stricter needs a new dataset"
    )
    text = f"persons may {'' if unbroken else 'not '}be {document.persons} after {earlier.persons}{why}"
    case.add("persons_declared_before", unbroken, text, earlier.source)


def _check_policy(case: Case, document: StreamDocument, policy: Policy) -> None:
    """Check that the loss of one person or record over all slices is within the policy's budget for a partition."""
    for code, subject, value, most in (
        ("epsilon_above_budget", "the stream's epsilon", document.budget.epsilon, policy.budget.epsilon_max),
        ("delta_above_budget", "the stream's delta", document.budget.delta, policy.budget.delta_max),
    ):
        case.at_most(code, subject, value, most, policy.source)
    case.equal("relation_not_permitted", "relation", document.relation, policy.relation, policy.source)
    case.equal("unit_not_permitted", "unit", document.unit, policy.unit, policy.source)
    case.one_of("rule_not_permitted", document.rule, policy.rules, policy.source)
    records, least = Fraction(document.records_min), Fraction(policy.records_min)
    case.at_least("records_too_few", "the least number of records of a slice", records, least, policy.source)
    if policy.partition_age_days_max is not None:
        days = document.life_days, policy.partition_age_days_max
        case.count_at_most("life_above_policy", "the days of a slice,", *days, policy.source)
    if policy.load is not None:
        expected = f"the one of digest {policy.load.digest[:16]}"
        case.check("load_not_declared", document.load == policy.load, "the declared load", expected, policy.source)


def check_slice(case: Case, body: OpenPartition, policy: Policy) -> None:
    """Check a partition of a dataset with a stream: it is the next slice, by the stream's terms, of fresh persons."""
    every = tuple(_readable_documents(case.facts, body.commitments))
    persons = tuple(document for document in every if read_commitments(document).persons)
    document = stream_in_force(case.facts, body.provider, body.dataset)
    if document is None:
        if persons:
            case.failed(
                "persons_without_stream", f"commitments to persons are for slices; {body.dataset} has no stream"
            )
        return
    _check_policy(case, document, policy)
    _check_terms(case, body, document)
    earlier = slices_of(case.facts, body.provider, body.dataset, case.facts.partitions.values())
    _check_period(case, body.partition, document, earlier)
    subject = f"commitments to the records of {body.ref}"
    case.check("commitments_missing", len(every) > len(persons), subject, "given", document.source)
    if document.persons == COMMITTED or persons:
        _check_persons(case, body, document, persons, earlier)


def _readable_documents(facts: Facts, digests: Sequence[str]) -> list[Stored]:
    """The documents that can be read; a check has reported the others."""
    documents = []
    for document in (stored_commitments(digest, facts) for digest in digests):
        try:
            read_commitments(document)
        except (KeyError, Malformed):
            continue
        documents.append(document)
    return documents


def _check_terms(case: Case, body: OpenPartition, document: StreamDocument) -> None:
    epsilon, delta = document.slice_budget
    for name, value, expected in (
        ("epsilon", format_number(body.epsilon), format_number(epsilon)),
        ("delta", format_number(body.delta), format_number(delta)),
        ("relation", body.relation, document.relation),
        ("unit_records_max", body.unit_records, document.unit_records_max or 1),
        ("rule", body.rule, document.rule),
        ("slack", format_number(body.slack or Fraction(0)), format_number(document.slack or Fraction(0))),
    ):
        case.equal("slice_differs_from_stream", name, value, expected, document.source)
    for name, same in (("load", body.load == document.load), ("prices", body.prices == document.prices)):
        case.check(
            "slice_differs_from_stream", same, f"the {name} of {body.ref}", "that of the stream", document.source
        )
    records, least = Fraction(body.records), Fraction(document.records_min)
    case.at_least("records_too_few", "the number of records", records, least, document.source)


def _check_period(case: Case, name: str, document: StreamDocument, earlier: Sequence[Partition]) -> None:
    kind = document.period
    if kind == BY_HAND:
        return
    start = start_of(kind, name)
    if start is None:
        case.failed("period_malformed", f"{name} is no {kind}, as {EXAMPLES[kind]}", document.source)
        return
    current = period_of(kind, case.now)
    open_ = period_before(kind, current), current
    text = f"the {kind} {name} is {'' if name in open_ else 'not '}one that may open now, {' or '.join(open_)}"
    case.add("period_not_open", name in open_, text, document.source)
    names = (partition.ref.rpartition("/")[2] for partition in reversed(earlier))
    newest = next(((other, span) for other in names if (span := span_of(other))), None)
    if newest is not None:
        until = (f"the end of the newest slice {newest[0]},", newest[1][1])
        case.not_after("period_overlaps", until, (f"the start of {name},", start), document.source)


def _check_persons(
    case: Case, body: OpenPartition, document: StreamDocument, own: tuple[Stored, ...], earlier: Sequence[Partition]
) -> None:
    source, most = document.source, document.appearances_max
    case.check("persons_missing", bool(own), f"commitments to the persons of {body.ref}", "given", source)
    if not own:
        return
    records = Fraction(sum(read_commitments(document).count for document in own) * body.unit_records)
    if body.unit != "record":
        case.at_least(
            "persons_too_few", "the records that the committed persons may have", records, Fraction(body.records), ""
        )
    groups = tuple(documents for partition in earlier if (documents := _persons_of(case.facts, partition)))
    keys = {read_commitments(document).key for document in own}
    same = len(keys) == 1 and keys.issuperset(
        read_commitments(document).key for documents in groups for document in documents
    )
    text = f"the key of the commitments to persons is {'' if same else 'not '}that of all slices of {body.dataset}"
    case.add("persons_key_changed", same, text, source)
    beyond = persons_beyond(own, groups, most)
    slices = "another slice" if most == 1 else f"{most} other slices"
    text = f"{beyond} persons of {body.ref} are in {slices} already; a person may be in {most}"
    case.add("persons_too_often", not beyond, text, source)


def _persons_of(facts: Facts, partition: Partition) -> tuple[Stored, ...]:
    return tuple(
        document for document in _readable_documents(facts, partition.commitments) if read_commitments(document).persons
    )


def check_windows(case: Case, partitions: Sequence[Partition]) -> None:
    """Check that a run covers no more slices of each stream than the stream, or a tighter version, allows."""
    terms = [(partition, limits) for partition in partitions if (limits := slice_terms(case.facts, partition))]
    counts = Counter((partition.provider, partition.dataset) for partition, _ in terms)
    for place, count in counts.items():
        of_stream = (limits for partition, limits in terms if (partition.provider, partition.dataset) == place)
        least = min(of_stream, key=lambda limits: limits.window_max)
        subject = f"the number of slices of {place[1]} in one run,"
        case.count_at_most("window_too_long", subject, count, least.window_max, least.window_source)


def check_gaps(case: Case, partitions: Sequence[Partition]) -> None:
    """Check that consecutive slices of a range are of consecutive periods: a run must not span missed ones."""
    missed = [period for first, then in pairwise(partitions) for period in missed_between(case.facts, first, then)]
    if missed:
        periods = ", ".join(missed[:_MISSED_MAX]) + (
            f" and {len(missed) - _MISSED_MAX} more" if missed[_MISSED_MAX:] else ""
        )
        case.failed("range_has_gaps", f"no slice opened for {periods}: name a range before and another one after")


def missed_between(facts: Facts, first: Partition, then: Partition) -> Iterator[str]:
    """The periods between two partitions, the later of which is a slice, in which no slice opened."""
    terms = slice_terms(facts, then)
    kind = BY_HAND if terms is None else terms.stream.period
    before, after = (partition.ref.rpartition("/")[2] for partition in (first, then))
    begins = start_of(kind, before), start_of(kind, after)
    # A partition that opened before the stream may have the name of a later period.
    if kind == BY_HAND or begins[0] is None or begins[1] is None or begins[1] <= begins[0]:
        return iter(())
    return takewhile(lambda period: period != after, islice(periods_from(kind, before), 1, 1 + _GAP_MAX))


VERDICTS: Final = (on(STREAM, stream),)
"""By kind of command."""
