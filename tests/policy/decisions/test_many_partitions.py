"""A partition opens after hundreds of others: what a refusal says of them fits into its entry."""

from __future__ import annotations

from typing import Final

import pytest

from ledger.commands.entry import ENTRY_BYTES_MAX
from ledger.wire import canonical_json as c
from tests.factories.decision_facts import decide
from tests.factories.decision_scene import PARTITION

EARLIER: Final = 400


@pytest.mark.parametrize(
    ("old", "code", "said"),
    [
        (["k", "b"], "records_overlap", "1 records of "),
        (["j", "c"], "commitments_key_changed", "the key of the commitments is not that of "),
        (["k", "c"], "records_too_few", "the number of records "),
    ],
)
def test_a_refusal_is_one_entry(old: list[str], code: str, said: str) -> None:
    """Twenty partitions are named and the others counted; what is right is said once."""
    partitions = [{**PARTITION, "name": f"w{n}", "index": 100 + n, "commitments": ["old"]} for n in range(EARLIER)]
    change = {
        "body|commitments": ["new"],
        "body|records": 2,
        "commitments": {"new": ["k", "a", "b"], "old": old},
        "partitions": partitions,
        "policies|0|records_min": 3 if code == "records_too_few" else 1,
    }
    verdict = decide("partition", change)
    found = [check for check in verdict.checks if not check.passed]
    assert {check.code for check in found} == {code}
    assert len(found) == (1 if code == "records_too_few" else 21)
    assert all(check.text.startswith(said) for check in found[:20])
    if code == "commitments_key_changed":
        assert not any(check.passed and check.code == code for check in verdict.checks)
    if code == "records_too_few":
        right = [check.code for check in verdict.checks if check.passed]
        assert (right.count("commitments_key_changed"), right.count("records_overlap")) == (1, 2)
    assert code == "records_too_few" or found[-1].text == f"and so of {EARLIER - 20} more partitions"
    assert len(c.dump([check.to_json() for check in verdict.checks])) < ENTRY_BYTES_MAX // 4
