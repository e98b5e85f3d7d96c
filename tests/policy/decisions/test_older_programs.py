"""Checks that an earlier program did not make: replay accepts what it permitted until a date, and nothing else does."""

import dataclasses
from typing import Any, Final

import pytest

from policy.checks.field_readers import format_time
from policy.decisions.documents import LATER_SINCE_MS
from policy.decisions.gate import ONE_SPELLING_SINCE_MS, gate
from policy.decisions.releases import FROZEN_OPENINGS_SINCE_MS, ONE_MODEL_SINCE_MS, OVER_CAP_RELEASES_SINCE_MS
from tests.factories.decision_facts import build
from tests.factories.decision_scene import ASKED, SCENE
from tests.factories.path_changes import changed
from tests.factories.people import BANK_A, BANK_B, HOUR_MS

PIPELINE: Final = "a" * 64
BEFORE: Final = format_time(LATER_SINCE_MS - HOUR_MS)
CHECKS: Final[dict[str, tuple[str, int, dict[str, Any]]]] = {
    # Of a run whose post names no model, the first that it announced is released and no other.
    "model_not_first": (
        "model_release",
        ONE_MODEL_SINCE_MS,
        {"charge|notices": dict.fromkeys(("f" * 64, "ab" * 32), "2026-05-01T00:00:00Z")},
    ),
    # A sealed model of a pipeline that audits have disproved is not opened.
    "pipeline_frozen": (
        "model_opening",
        FROZEN_OPENINGS_SINCE_MS,
        {"audits": [[PIPELINE, True]] * 4, "charge|pipeline": PIPELINE},
    ),
    # A DID has one spelling.
    "did_spelling": ("organisation", ONE_SPELLING_SINCE_MS, {"body|organisation": "did:web:New.example"}),
    # A wider version of a policy has a later date than the one that is in force.
    "effective_unordered": (
        "policy",
        LATER_SINCE_MS,
        {
            "policies|0|effective": BEFORE,
            "entered|effective": BEFORE,
            "policies|0|lineage": {"epsilon_max": "5"},
        },
    ),
}
"""By the check's code: the kind of command, the date, and what is wrong in the scene."""


@pytest.mark.parametrize("code", CHECKS)
@pytest.mark.parametrize(
    ("before_ms", "permitted", "fails"), [(1, True, False), (0, True, True), (1, False, True), (0, False, True)]
)
def test_what_an_earlier_program_permitted_replays_until_a_date(
    code: str, before_ms: int, *, permitted: bool, fails: bool
) -> None:
    """Until then, and not at it; a request of today is denied whatever the clock says."""
    kind, since_ms, change = CHECKS[code]
    request, facts = build(kind, changed({**SCENE, "signers": [], "body": {}, **ASKED[kind]}, change))
    verdict = gate(dataclasses.replace(request, now=since_ms - before_ms, permitted=permitted), facts)
    failed = [one.code for one in verdict.checks if one.code == code and not one.passed]
    assert failed == [code] * fails


@pytest.mark.parametrize(
    ("before_ms", "permitted", "stated"), [(1, True, False), (0, True, True), (1, False, True), (0, False, True)]
)
def test_caps_on_a_key_release_are_stated_since_a_date(before_ms: int, *, permitted: bool, stated: bool) -> None:
    """Where a coalition follows the charge's organisation since; else the release needs none."""
    now = OVER_CAP_RELEASES_SINCE_MS - before_ms
    for coalitions in ([], [{"members": [BANK_A, BANK_B], "epsilon": "3"}]):
        scene = changed({**SCENE, "signers": [], "body": {}, **ASKED["key_release"]}, {"coalitions": coalitions})
        request, facts = build("key_release", scene)
        verdict = gate(dataclasses.replace(request, now=now, permitted=permitted), facts)
        assert {ref for ref, _ in verdict.caps} == (set(facts.partitions) if coalitions and stated else set())
