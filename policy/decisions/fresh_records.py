"""Renewal: the commitments to a new partition's records, compared with every earlier partition of its provider."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from ledger.commands.registration.partition import OpenPartition
from ledger.domain.facts import Facts
from ledger.wire.malformed import Malformed
from policy.decisions.request import Case
from policy.documents import DatasetDescription, Policy
from policy.documents.partition_commitments import Stored, overlap, read_commitments, repeated


def check_fresh_records(case: Case, body: OpenPartition, policy: Policy, dataset: DatasetDescription) -> None:
    """Check the commitments that a policy requires, and that none of them was made before.

    Retired partitions count, and so do the provider's other datasets: old records under a new name are not fresh.
    """
    if policy.commitments:
        subject = f"commitments to the records of {body.ref}"
        case.check("commitments_missing", bool(body.commitments), subject, "given", policy.source)
        expected = "stated: which partition a privacy unit belongs to"
        case.exists(
            "membership_missing", dataset.membership, f"the membership of {dataset.id}", expected, dataset.source
        )
    own = _read(case, body)
    if not own:
        return
    total = Fraction(sum(read_commitments(one).count for one in own) * body.unit_records)
    case.at_least("commitments_too_few", "the number of committed records", total, Fraction(body.records), "")
    _check_overlap(case, body, own)


def _read(case: Case, body: OpenPartition) -> tuple[Stored, ...]:
    found = tuple(_stored(digest, case.facts) for digest in body.commitments)
    for one in found:
        try:
            read_commitments(one)
        except KeyError:
            case.failed("commitments_malformed", f"commitments {one.digest} are not stored")
            return ()
        except Malformed as error:
            case.failed("commitments_malformed", str(error))
            return ()
    if found:
        case.passed("commitments_malformed", f"{len(found)} document(s) of commitments can be read")
    return found


def _check_overlap(case: Case, body: OpenPartition, own: tuple[Stored, ...]) -> None:
    keys = {read_commitments(one).key for one in own}
    twice = repeated(own)
    case.add("records_overlap", not twice, f"{twice} records are committed to twice in {body.ref}")
    for earlier in case.facts.partitions.values():
        if earlier.provider != body.provider or not earlier.commitments:
            continue
        theirs = [_stored(digest, case.facts) for digest in earlier.commitments]
        same = {read_commitments(one).key for one in theirs} == keys and len(keys) == 1
        text = f"the key of the commitments is {'' if same else 'not '}that of {earlier.ref}"
        case.add("commitments_key_changed", same, text)
        shared = sum(overlap(own, one) for one in theirs)
        case.add("records_overlap", not shared, f"{shared} records of {body.ref} are those of {earlier.ref}")


def _stored(digest: str, facts: Facts) -> Stored:
    return Stored(digest, partial(facts.documents.__getitem__, digest))
