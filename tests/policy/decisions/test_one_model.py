"""One charge, one model: of a run whose post names none, the first that it announced is released and no other."""

import dataclasses
from typing import Final

import pytest

from policy.decisions.gate import gate
from policy.decisions.releases import ONE_MODEL_SINCE_MS
from tests.factories.decision_facts import build
from tests.factories.decision_scene import ASKED, SCENE
from tests.factories.path_changes import changed

ANNOUNCED_SECOND: Final = {"charge|notices": dict.fromkeys(("f" * 64, "ab" * 32), "2026-05-01T00:00:00Z")}


@pytest.mark.parametrize(
    ("before_ms", "permitted", "found"),
    [(1, True, []), (0, True, [False]), (1, False, [False]), (0, False, [False])],
)
def test_what_an_earlier_program_permitted_replays_until_a_date(
    before_ms: int, *, permitted: bool, found: list[bool]
) -> None:
    """Until then, and not at it; a request of today is denied whatever the clock says."""
    scene = changed({**SCENE, "signers": [], **ASKED["model_release"]}, ANNOUNCED_SECOND)
    request, facts = build("model_release", scene)
    verdict = gate(dataclasses.replace(request, now=ONE_MODEL_SINCE_MS - before_ms, permitted=permitted), facts)
    assert [one.passed for one in verdict.checks if one.code == "model_not_first"] == found
