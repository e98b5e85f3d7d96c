"""Renewal: the commitments to a new partition's records, compared with every earlier partition of its provider."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from ledger.commands.registration.partition import OpenPartition
from ledger.domain.facts import Facts
from ledger.wire.malformed import Malformed
from policy.checks.findings import Findings
from policy.documents import DatasetDescription, Policy
from policy.documents.partition_commitments import Stored, overlap, read_commitments, repeated


def check_fresh_records(
    findings: Findings, body: OpenPartition, policy: Policy, dataset: DatasetDescription, facts: Facts
) -> None:
    """Check the commitments that a policy requires, and that none of them was made before.

    Retired partitions count, and so do the provider's other datasets: old records under a new name are not fresh.
    """
    if policy.commitments:
        given = bool(body.commitments)
        findings.check(
            "commitments_missing", given, f"commitments to the records of {body.ref}", "given", policy.source
        )
        stated = dataset.membership is not None
        expected = "stated: which partition a privacy unit belongs to"
        findings.check("membership_missing", stated, f"the membership of {dataset.id}", expected, dataset.source)
    own = _read(findings, body, facts)
    if not own:
        return
    total = sum(read_commitments(one).count for one in own) * body.unit_records
    findings.at_least(
        "commitments_too_few", "the number of committed records", Fraction(total), Fraction(body.records), ""
    )
    _check_overlap(findings, body, own, facts)


def _read(findings: Findings, body: OpenPartition, facts: Facts) -> tuple[Stored, ...]:
    found = tuple(_stored(digest, facts) for digest in body.commitments)
    for one in found:
        try:
            read_commitments(one)
        except KeyError:
            findings.failed("commitments_malformed", f"commitments {one.digest} are not stored")
            return ()
        except Malformed as error:
            findings.failed("commitments_malformed", str(error))
            return ()
    if found:
        findings.passed("commitments_malformed", f"{len(found)} document(s) of commitments can be read")
    return found


def _check_overlap(findings: Findings, body: OpenPartition, own: tuple[Stored, ...], facts: Facts) -> None:
    keys = {read_commitments(one).key for one in own}
    twice = repeated(own)
    findings.add("records_overlap", not twice, f"{twice} records are committed to twice in {body.ref}")
    for earlier in facts.partitions.values():
        if earlier.provider != body.provider or not earlier.commitments:
            continue
        theirs = [_stored(digest, facts) for digest in earlier.commitments]
        same = {read_commitments(one).key for one in theirs} == keys and len(keys) == 1
        text = f"the key of the commitments is {'' if same else 'not '}that of {earlier.ref}"
        findings.add("commitments_key_changed", same, text)
        shared = sum(overlap(own, one) for one in theirs)
        findings.add("records_overlap", not shared, f"{shared} records of {body.ref} are those of {earlier.ref}")


def _stored(digest: str, facts: Facts) -> Stored:
    return Stored(digest, partial(facts.documents.__getitem__, digest))
