"""A sealed model of a pipeline that audits have disproved is not opened; a log of before the date may hold one."""

import dataclasses
from typing import Final

import pytest

from policy.decisions.gate import gate
from policy.decisions.releases import FROZEN_OPENINGS_SINCE_MS
from tests.factories.decision_facts import build
from tests.factories.decision_scene import ASKED, SCENE
from tests.factories.path_changes import changed

PIPELINE: Final = "a" * 64
DISPROVED: Final = {"audits": [[PIPELINE, True]] * 4, "charge|pipeline": PIPELINE}


@pytest.mark.parametrize(
    ("before_ms", "permitted", "found"),
    [(1, True, []), (0, True, [False]), (1, False, [False]), (0, False, [False])],
)
def test_what_an_earlier_program_permitted_replays_until_a_date(
    before_ms: int, *, permitted: bool, found: list[bool]
) -> None:
    """Until then, and not at it; a request of today is denied whatever the clock says."""
    scene = changed({**SCENE, "signers": [], **ASKED["model_opening"]}, DISPROVED)
    request, facts = build("model_opening", scene)
    verdict = gate(dataclasses.replace(request, now=FROZEN_OPENINGS_SINCE_MS - before_ms, permitted=permitted), facts)
    assert [one.passed for one in verdict.checks if one.code == "pipeline_frozen"] == found
