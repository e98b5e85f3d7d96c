"""Each check on both sides of its edge: what is changed in a scene that permits, and the faults then found.

The cases are data, in ``cases``. An empty list of faults is a permit on the near side of an edge.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.domain.gate import Verdict
from ledger.wire.exact_numbers import NAT
from policy.checks.findings import Findings
from policy.decisions.organisation_lineage import NAMED_MAX
from tests.factories.decision_facts import decide
from tests.factories.decision_scene import PARTITION
from tests.factories.path_changes import GONE
from tests.factories.people import BANK_A, HOSPITAL, SRO
from tests.policy.decisions.verdict_texts import texts_of, written

HERE: Final = Path(__file__).parent
C1, P1 = "contract digits-bank-a version 1", "policy health-policy version 1"
JUST_ABOVE_2, JUST_BELOW_2_4 = "2.00000000000000000000001", "2.39999999999999999999999"
ONLY_FOUND: Final = {
    "document_malformed",
    "document_inconsistent",
    "evaluation_error",
    "kind_unknown",
    "period_malformed",
    "persons_without_stream",
}
"""Faults that are told where they are found, and whose absence nobody notes."""

Change = dict[str, Any]
Case = tuple[str, Change, set[str]]


def read(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A value of a case; ``"<gone>"`` takes its field away."""
    if isinstance(value, dict):
        return {name: read(inner) for name, inner in value.items()}
    return [read(inner) for inner in value] if isinstance(value, list) else GONE if value == "<gone>" else value


def cases() -> list[Case]:
    """Every case of every file."""
    return [
        (path.stem, read(one["change"]), set(one["faults"]))
        for path in sorted((HERE / "cases").glob("*.json"))
        for one in json.loads(path.read_text("utf-8"))
    ]


CASES: Final = cases()


def codes_listed() -> set[str]:
    """Every code in the README's table of checks."""
    listed: set[str] = set()
    table = (HERE.parents[2] / "policy" / "README.md").read_text("utf-8").partition("## The checks")[2]
    for line in table.splitlines():
        if line.startswith("| `"):
            first, *more = re.findall(r"`(\w+)`", line.split("|")[1])
            stem = first.partition("_")[0]
            listed |= {first, *(f"{stem}{code}" if code.startswith("_") else code for code in more)}
    return listed


def faults(verdict: Verdict) -> set[str]:
    """The codes of the checks that failed."""
    return {check.code for check in verdict.checks if not check.passed}


def test_each_edge() -> None:
    """Exactly the listed faults are found, and one fault is enough to deny."""
    for kind, change, found in CASES:
        verdict = decide(kind, change)
        assert faults(verdict) == found, (kind, change)
        assert verdict.permit is not bool(found)


def test_each_sentence_is_as_written_down() -> None:
    """What the cases say, word for word: see ``verdict_texts`` for how a new sentence is written down."""
    assert texts_of(check for kind, change, _ in CASES for check in decide(kind, change).checks) == written()


def test_every_code_has_a_case_on_each_side_of_its_edge() -> None:
    """What the README lists is what is ever checked, found and not found."""
    checks = [check for kind, change, _ in CASES for check in decide(kind, change).checks]
    found, absent = ({check.code for check in checks if check.passed is passed} for passed in (False, True))
    assert found == codes_listed()
    assert absent == codes_listed() - ONLY_FOUND


@pytest.mark.parametrize("code", sorted(codes_listed()))
def test_without_any_one_check_a_case_fails(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine with this check always passed gives a verdict that is not the listed one."""
    those = [(kind, change, found) for kind, change, found in CASES if code in found]
    whole = Findings.add

    def without(self: Findings, name: str, passed: bool, text: str, source: str = "") -> None:  # noqa: FBT001 - its own
        whole(self, name, passed or name == code, text, source)

    monkeypatch.setattr(Findings, "add", without)
    assert those
    assert all(faults(decide(kind, change)) != found for kind, change, found in those)


@pytest.mark.parametrize(
    ("kind", "change", "code", "text", "source"),
    [
        ("charge", {"partitions|0|run": "2.40001"}, "run_above_contract", "2.40001 exceeds the maximum 2.4", C1),
        ("charge", {"partitions|0|run": JUST_ABOVE_2}, "run_above_policy", "2.0001 is at most 2.5", P1),
        ("charge", {"partitions|0|run": JUST_BELOW_2_4}, "run_above_contract", "2.4000 is at most 2.4", C1),
        ("charge", {"runs": 3}, "runs_exhausted", "4 exceeds the maximum 3", C1),
        (
            "charge",
            {"partitions|0|opened": "2026-01-31T00:00:00Z"},
            "partition_too_old",
            "Z is after the last",
            P1,
        ),
        ("partition", {"body|records": 499}, "records_too_few", "499 is below the minimum 500", P1),
        ("partition", {"body|delta": "1/3"}, "delta_above_budget", "1/3 exceeds the maximum 0.00001", P1),
        (
            "contract",
            {"signers": [HOSPITAL]},
            "signature_missing",
            f"{BANK_A} has not signed",
            "contract new version 1",
        ),
        (
            "policy",
            {"signers": []},
            "signature_missing",
            f"{SRO} has not signed",
            "policy health-policy version 2",
        ),
        ("policy", {"entered|level": "1"}, "document_malformed", "level: must be an integer, not str", ""),
    ],
)
def test_a_check_tells_numbers_and_source(kind: str, change: Change, code: str, text: str, source: str) -> None:
    """The numbers compared and the document that says so stand in the check."""
    found = [check for check in decide(kind, change).checks if check.code == code]
    assert any(text in check.text and check.source == source for check in found)


def test_each_missing_signature_is_named() -> None:
    """A contract that nobody signed names every party, once each."""
    verdict = decide("contract", {"signers": []})
    named = [check.text for check in verdict.checks if check.code == "signature_missing"]
    assert named == [f"{HOSPITAL} has not signed", f"{BANK_A} has not signed"]


@pytest.mark.parametrize(("count", "more"), [(NAMED_MAX, []), (NAMED_MAX + 3, ["and 3 more accounts"])])
def test_a_denial_names_a_bounded_number_of_accounts(count: int, more: list[str]) -> None:
    """Each account that a proposed merger would freeze, up to a number; beyond it only how many there are."""
    terms = {"delta": "0", "terms": '{"delta":"0","kind":"pure","v":1}'}
    partitions = [{**PARTITION, **terms, "name": f"p{at:02}", "run": None} for at in range(count)]
    refs = [f"{HOSPITAL}/digits/{one['name']}" for one in partitions]
    change = {"body|proposed": True, "charge|prices": dict.fromkeys(refs, NAT), "partitions": partitions}
    texts = [one.text for one in decide("merger", change).checks if one.code == "account_would_freeze"]
    assert [ref for ref in refs if any(ref in text for text in texts)] == refs[:NAMED_MAX]
    assert texts[NAMED_MAX:] == more
