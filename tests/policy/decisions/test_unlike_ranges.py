"""A charge over a range whose partitions are not alike: each check names those that it is of; each has its terms."""

from __future__ import annotations

from typing import Any

from ledger.domain.gate import Verdict
from tests.factories.decision_facts import decide
from tests.factories.decision_scene import PARTITION, PLAN, POLICY
from tests.factories.people import HOSPITAL

DATASET = f"{HOSPITAL}/digits"
NAMES = ("one", "two", "three", "four")


def _partitions(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """As many partitions, each with a change of its own."""
    return [
        {**PARTITION, "name": name, "index": 20 + place, **change}
        for place, (name, change) in enumerate(zip(NAMES, changes, strict=False))
    ]


def _charged(*changes: dict[str, Any], **scene: Any) -> Verdict:  # noqa: ANN401 - JSON
    """The verdict on a charge over all of these partitions, each with a change of its own."""
    named = {"dataset": DATASET, "first": NAMES[0], "last": NAMES[len(changes) - 1]}
    opened = {"partitions": _partitions(*changes), "body|partitions": [], "body|ranges": [named]}
    return decide("charge", {**opened, **scene})


def _failed(verdict: Verdict, code: str) -> list[str]:
    return [check.text for check in verdict.checks if check.code == code and not check.passed]


def _passed(verdict: Verdict, code: str) -> list[str]:
    return [check.text for check in verdict.checks if check.code == code and check.passed]


def test_partitions_that_are_alike_are_checked_once_and_each_has_its_caps() -> None:
    """One check for all; caps of each, the others' budgets too."""
    verdict = _charged({}, {}, {"epsilon": "6.5"}, {})
    caps = dict(verdict.caps)
    assert {ref: str(found.everyone) for ref, found in caps.items()} == {
        f"{DATASET}/one": "7",
        f"{DATASET}/two": "7",
        f"{DATASET}/three": "13/2",
        f"{DATASET}/four": "7",
    }
    assert len(_passed(verdict, "partition_retired")) == len(_passed(verdict, "partition_too_old")) == 2
    assert _passed(verdict, "partition_retired")[0] == f"{DATASET}[one..two], {DATASET}/four is open"


def test_what_is_retired_is_named_and_the_others_are_not() -> None:
    """The second of three."""
    verdict = _charged({}, {"retired": True}, {})
    (text,) = _failed(verdict, "partition_retired")
    assert "two" in text
    assert not any(name in text for name in ("one", "three"))


def test_what_is_past_its_age_is_named_and_the_others_are_not() -> None:
    """Ninety days: a partition of just that age is not past it, and one a second older is."""
    verdict = _charged({"opened": "2026-03-02T23:59:59Z"}, {"opened": "2026-03-03T00:00:00Z"}, {})
    (text,) = _failed(verdict, "partition_too_old")
    assert "one" in text
    assert "two" not in text
    assert len(_passed(verdict, "partition_too_old")) == 1


def test_partitions_under_two_policies_are_checked_by_their_own() -> None:
    """The first opened while Level 1 bound it for good; the second later, at Level 0; neither is too old."""
    later = {**POLICY, "effective": "2026-05-10T00:00:00Z", "level": 0, "version": 2}
    newer = {"opened": "2026-05-20T00:00:00Z", "index": 60}
    verdict = _charged({}, newer, policies=[POLICY, later])
    caps = dict(verdict.caps)
    assert (caps[f"{DATASET}/one"].everyone is None, caps[f"{DATASET}/two"].everyone is None) == (False, True)
    assert _failed(verdict, "partition_too_old") == []


def test_a_model_of_partitions_under_two_policies_leaves_by_the_terms_of_each() -> None:
    """The first opened at Level 2, which seals its models; the others later, at Level 1."""
    sealing = {**POLICY, "level": 2, "model_release": False}
    later = {**POLICY, "effective": "2026-05-10T00:00:00Z", "version": 2}
    newer = {"opened": "2026-05-20T00:00:00Z", "index": 60}
    scene: dict[str, Any] = {"partitions": _partitions({}, newer, newer), "policies": [sealing, later]}
    verdict = decide("model_release", {**scene, "charge|groups": [[0, 1], [1, 2]]})
    assert _failed(verdict, "level_seals_model") == [f"Level of {DATASET}/one 2 exceeds the maximum 1"]
    assert _passed(verdict, "level_seals_model") == [f"Level of {DATASET}[two..three] 1 is at most 1"]


def test_a_range_is_several_partitions_to_an_audit() -> None:
    """Also one of a single partition, since nothing names it."""
    audited = {"canaries": 2000, "guesses": 200, "kind": "audited", "training": PLAN, "v": 1}
    terms = {"canaries_max": 2000, "partitions": [f"{DATASET}/one"]}
    scene: dict[str, Any] = {"body|plan": audited, "body|pipeline": "a" * 64, "contracts|0|audit": terms}
    assert _failed(_charged({}, **scene), "audit_on_several")


def test_only_a_charge_says_what_of_its_leases_returns() -> None:
    """As the policy states; a verdict of another kind says nothing of it."""
    leased = {"policies|0|refund": "attested", "policies|0|step_leases": True, "body|step_leases": True}
    assert decide("charge", leased).refund == "attested"
    assert (decide("charge").refund, decide("post").refund) == ("", "")
