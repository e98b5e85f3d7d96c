"""Until when a permit is the same for every request alike: before that moment no decision differs, at it some do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from ledger.commands.runs.settlement import Post
from ledger.commands.runs.step_refund import returned_steps
from ledger.domain.facts import Facts
from ledger.domain.gate import Request
from policy.checks.field_readers import parse_time
from policy.decisions.gate import gate
from tests.factories.decision_facts import build, decide
from tests.factories.decision_scene import ASKED, CONTRACT, POLICY, SCENE
from tests.factories.path_changes import changed
from tests.policy.decisions.test_cases import CASES

RUNS: Final = ("charge", "post", "void", "lapse")
DAY: Final = 86_400_000
LATER: Final = {**POLICY, "version": 2, "effective": "2026-06-03T00:00:00Z", "lineage": {"epsilon_max": "5"}}


def scene(kind: str, change: dict[str, Any]) -> tuple[Request, Facts]:
    """A request and the facts, of a scene with changes."""
    return build(kind, changed({**SCENE, "signers": [], **ASKED[kind]}, change))


def moments(request: Request, facts: Facts, until: int) -> set[int]:
    """Moments before one, each edge of any document among them."""
    edges = {one.effective for versions in facts.policies.values() for one in versions}
    edges |= {one.opened + days * DAY for one in facts.partitions.values() for days in range(400)}
    edges = {edge + by for edge in edges for by in (-1, 0, 1)}
    return {one for one in edges | {(request.now + until) // 2, until - 1} if request.now <= one < until}


@pytest.mark.parametrize("kind", RUNS)
def test_before_that_moment_nothing_differs(kind: str) -> None:
    """Of every case that permits: the same permit and the same caps, at each edge between."""
    permitted = [change for name, change, found in CASES if name == kind and not found]
    for change in [{}, *permitted]:
        request, facts = scene(kind, change)
        verdict = gate(request, facts)
        assert verdict.permit
        leases = facts.charges["run-1"].leases if kind == "post" else None
        if leases is not None and isinstance(request.body, Post) and returned_steps(leases, request.body):
            # A post that returns leased steps is decided each time: it may bring evidence, which ages.
            assert verdict.until is None
            continue
        assert verdict.until is not None
        for moment in moments(request, facts, verdict.until):
            assert gate(replace(request, now=moment), facts) == replace(verdict, checks=_checks(request, facts, moment))


def _checks(request: Request, facts: Facts, moment: int) -> Any:  # noqa: ANN401 - sentences, which name the moment
    verdict = gate(replace(request, now=moment), facts)
    assert all(check.passed for check in verdict.checks)
    return verdict.checks


@pytest.mark.parametrize(
    ("change", "until"),
    [
        ({}, parse_time("2026-07-30T00:00:00Z", "") + 1),
        ({"contracts|0|ends": "2026-06-20T00:00:00Z"}, parse_time("2026-06-20T00:00:00Z", "")),
        ({"policies": [POLICY, LATER]}, parse_time("2026-06-03T00:00:00Z", "")),
    ],
)
def test_at_that_moment_the_decision_differs(change: dict[str, Any], until: int) -> None:
    """The contract has ended, the partition is too old, or another version of the policy binds."""
    request, facts = scene("charge", change)
    before, then = (gate(replace(request, now=until - by), facts) for by in (1, 0))
    assert before.until == until
    assert before.permit
    assert not then.permit or then.caps != before.caps


def test_runs_of_a_contract_are_bounded() -> None:
    """It holds for so many runs, and not for one more."""
    request, facts = scene("charge", {})
    assert gate(request, facts).runs_max == CONTRACT["runs_max"]
    assert gate(*scene("charge", {"runs": CONTRACT["runs_max"] - 1})).permit
    assert not gate(*scene("charge", {"runs": CONTRACT["runs_max"]})).permit


def test_a_denial_and_other_kinds_have_none() -> None:
    """What is denied is decided anew each time; so is what asks for an attestation."""
    request, facts = scene("charge", {"runs": 3})
    assert gate(request, facts).until is None
    assert all(decide(kind).until is None for kind in ASKED if kind not in RUNS)
