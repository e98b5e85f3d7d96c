"""What a verdict holds besides its checks: headers, caps, Levels over time, and denial by default."""

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from msgspec import structs

from ledger.domain.gate import Caps, Header
from ledger.domain.organisation_graph import ancestors
from ledger.wire.canonical_json import digest, dump
from policy.checks.field_readers import parse_time
from policy.decisions.documents_in_force import binding, policy_in_force
from policy.decisions.gate import gate
from tests.factories.decision_facts import build, decide
from tests.factories.decision_scene import (
    ASKED,
    CONTRACT,
    DECIDED_AT,
    PARTITION,
    POLICY,
    RECOMMENDATION,
    REF,
    SCENE,
    STREAM,
)
from tests.factories.path_changes import GONE, changed
from tests.factories.people import BANK_A, HOSPITAL, SRO

NOW_MS = parse_time(DECIDED_AT, "now")
DAY = 86_400_000
SEVEN, SIX = Fraction(7), Fraction(6)


def version(number: int, level: int, effective: str) -> dict[str, Any]:
    """A later version of the policy at a Level; only Level 1 states an age, of 40 days."""
    later = {
        **POLICY,
        "version": number,
        "level": level,
        "effective": effective,
        "partition_age_days_max": 40,
    }
    return changed(later, {"model_release": False, **({} if level == 1 else {"partition_age_days_max": GONE})})


@pytest.mark.parametrize("kind", ASKED)
def test_the_scene_permits(kind: str) -> None:
    """Every kind has a permit, after at least one check."""
    verdict = decide(kind)
    assert verdict.permit
    assert verdict.checks


def test_headers_hold_what_the_book_keeps() -> None:
    """Kind, id, version, domain, parties and dates, and nothing else of a document."""
    dates = parse_time(CONTRACT["starts"], ""), parse_time(CONTRACT["ends"], "")
    assert decide("policy").header == Header("policy", "health-policy", 2, domain="health", starts=NOW_MS)
    assert decide("dataset").header == Header("dataset", "letters", 1, domain="health", providers=(HOSPITAL,))
    assert decide("contract").header == Header("contract", "new", 1, "", BANK_A, (HOSPITAL,), *dates)
    assert decide("stream").header == Header("stream", STREAM["dataset"], STREAM["version"], providers=(HOSPITAL,))
    advised = RECOMMENDATION
    about = Header("recommendation", advised["dataset"], advised["version"], providers=(advised["provider"],))
    assert decide("recommendation").header == about


@pytest.mark.parametrize(
    ("kind", "change", "caps"),
    [
        ("charge", {}, Caps(SEVEN, SIX)),
        ("charge", {"policies|0|level": 0}, Caps(None, SIX)),
        ("charge", {"policies|0|level": 2, "policies|0|model_release": False}, Caps(SEVEN, SIX)),
        ("charge", {"contracts|0|lineage": {"epsilon_max": "5"}}, Caps(SEVEN, Fraction(5))),
        ("charge", {"contracts|0|lineage": {"epsilon_max": "6.5"}}, Caps(SEVEN, SIX)),
        ("charge", {"partitions|0|epsilon": "3"}, Caps(Fraction(3), Fraction(3))),
        ("partition", {}, Caps(SEVEN, SIX)),
        ("partition", {"policies|0|level": 0}, Caps(None, SIX)),
        (
            "partition",
            {"policies|0|levels": [{"dataset": "digits", "level": 0, "provider": HOSPITAL}]},
            Caps(None, SIX),
        ),
        ("partition", {"body|epsilon": "5"}, Caps(Fraction(5), Fraction(5))),
    ],
)
def test_caps(kind: str, change: dict[str, Any], caps: Caps) -> None:
    """Everyone together is capped but at Level 0; each lineage by the least of policy, contract, budget."""
    verdict = decide(kind, change)
    assert [cap for _, cap in verdict.caps] == [caps]
    # Where the budget itself is the least, no document states it.
    assert [cap.lineage_source for _, cap in verdict.caps if cap.lineage == cap.everyone] in ([], [""])
    assert verdict.permit


@pytest.mark.parametrize(
    ("versions", "level", "age"),
    [
        ([(1, "2026-01-01", 0)], 0, None),
        ([(1, "2026-01-01", 0), (2, "2026-05-20", 1)], 1, 40),
        ([(1, "2026-01-01", 1), (2, "2026-05-20", 0)], 1, 40),
        ([(1, "2026-01-01", 0), (2, "2026-05-20", 1), (3, "2026-05-25", 0)], 1, 40),
        ([(1, "2026-01-01", 0), (2, "2026-06-02", 1)], 0, None),
        ([(1, "2026-01-01", 0), (2, "2026-06-01", 1)], 1, 40),
        ([(1, "2026-01-01", 2), (2, "2026-04-01", 0)], 2, None),
        ([(1, "2026-01-01", 0), (2, "2026-05-20", 2), (3, "2026-05-20", 0)], 0, None),
        ([(1, "2026-01-01", 1), (2, "2026-05-01", 0)], 1, 40),
    ],
)
def test_a_level_raised_binds_open_partitions_and_a_level_lowered_later_ones(
    versions: list[tuple[int, str, int]], level: int, age: int | None
) -> None:
    """The partition is opened on 1 May under version 1; later versions are entered after it."""
    documents = [version(number, at, f"{day}T00:00:00Z") for number, day, at in versions]
    scene = changed({**SCENE, "signers": [], **ASKED["charge"]}, {"policies": documents})
    request, facts = build("charge", scene)
    bound = binding(facts, facts.partitions[REF], request.now)
    assert bound is not None
    assert (bound.level, bound.age_days_max) == (level, age)
    assert bound.policy.version == max(number for number, day, _ in versions if day <= "2026-06-01")


WATCHED: dict[str, Any] = {"sealed": {"everyone": "watched", "inference": "attested"}}
CAPPED: dict[str, Any] = {"sealed": {"everyone": "caps", "inference": "attested"}}


@pytest.mark.parametrize(
    ("versions", "everyone"),
    [
        ([(1, {})], SEVEN),
        ([(0, {})], None),
        ([(2, WATCHED)], None),
        ([(1, {}), (2, WATCHED)], SEVEN),
        ([(2, CAPPED), (2, WATCHED)], SEVEN),
        ([(2, WATCHED), (2, CAPPED), (2, WATCHED)], SEVEN),
        ([(2, WATCHED), (0, {})], None),
        ([(2, WATCHED), (1, {}), (0, {})], SEVEN),
        ([(0, {}), (2, WATCHED)], None),
    ],
)
def test_a_global_cap_that_stood_once_stands_for_good(
    versions: list[tuple[int, dict[str, Any]]], everyone: Fraction | None
) -> None:
    """Whichever later version would only watch; the partition is opened under the first."""
    documents = [
        {**version(number, level, f"2026-0{number}-02T00:00:00Z"), **more}
        for number, (level, more) in enumerate(versions, 1)
    ]
    change = {"policies": documents, "partitions|0|opened": "2026-01-03T00:00:00Z", "partitions|0|index": 11}
    verdict = decide("charge", {**change, "policy_indexes": [10, 15, 16][: len(documents)]})
    (caps,) = {found for _, found in verdict.caps}
    assert caps.everyone == everyone


@pytest.mark.parametrize(("stated", "least", "at"), [("658", "5", 2), ("568", "5", 1), ("7", "7", 1), ("77", "7", 2)])
def test_a_wider_lineage_cap_is_for_partitions_to_come(stated: str, least: str, at: int) -> None:
    """The least that stood since the partition was opened binds, and its version is named; so no freeze just ends."""
    documents = [
        {**POLICY, "effective": f"2026-05-{number:02d}T00:00:00Z", "lineage": {"epsilon_max": one}, "version": number}
        for number, one in enumerate(stated.replace("8", "7"), 1)
    ]
    verdict = decide("charge", {"policies": documents})
    (caps,) = {found for _, found in verdict.caps}
    assert (caps.lineage, caps.lineage_source) == (Fraction(least), f"policy health-policy version {at}")


def test_a_partition_opened_after_a_level_was_lowered_has_the_lower_level() -> None:
    """Version 2 was entered, and in force, before the partition was opened."""
    documents = [version(1, 1, "2026-01-01T00:00:00Z"), version(2, 0, "2026-02-01T00:00:00Z")]
    scene = changed({**SCENE, "signers": [], **ASKED["charge"]}, {"policies": documents, "policy_indexes": [10, 15]})
    request, facts = build("charge", scene)
    bound = binding(facts, facts.partitions[REF], request.now)
    assert bound is not None
    assert (bound.level, bound.age_days_max) == (0, None)


def test_the_stricter_age_binds_when_both_versions_state_one() -> None:
    """Level 1 with 40 days was lowered to a Level 0 that states 30."""
    lowered = {**version(2, 0, "2026-05-20T00:00:00Z"), "partition_age_days_max": 30}
    documents = [version(1, 1, "2026-01-01T00:00:00Z"), lowered]
    verdict = decide("charge", {"policies": documents})
    old = next(check for check in verdict.checks if check.code == "partition_too_old")
    assert (old.passed, old.source) == (False, "policy health-policy version 2")


def test_policy_in_force_is_the_greatest_version_that_has_begun() -> None:
    """At its moment a version is in force; a millisecond before, the one before it is; before all, none."""
    documents = [POLICY, {**POLICY, "version": 2, "effective": DECIDED_AT}]
    _, facts = build("charge", changed({**SCENE, "signers": [], **ASKED["charge"]}, {"policies": documents}))
    first = parse_time(POLICY["effective"], "")
    found = [policy_in_force(facts, "health", moment) for moment in (first - 1, first, NOW_MS - 1, NOW_MS)]
    assert [one and one.version for one in found] == [None, 1, 1, 2]
    assert policy_in_force(facts, "elsewhere", NOW_MS) is None


def test_an_unknown_kind_is_denied() -> None:
    """What no rule permits is denied, with a reason."""
    request, facts = build("post", {**SCENE, "signers": [], **ASKED["post"]})
    odd = dataclasses.replace(request, command=structs.replace(request.command, kind="wish"))
    verdict = gate(odd, facts)
    assert not verdict.permit
    assert [check.code for check in verdict.checks] == ["kind_unknown"]
    longer = dataclasses.replace(request, command=structs.replace(request.command, kind="w" * 90))
    assert gate(longer, facts).checks[0].text == f"no rule permits '{'w' * 80}'"


@pytest.mark.parametrize("kind", ["charge", "key_release", "model_release"])
def test_an_error_inside_denies(kind: str) -> None:
    """Facts that contradict themselves are a denial that names the error, never an exception."""
    request, facts = build(kind, changed({**SCENE, "signers": [], **ASKED[kind]}, {}))
    facts.datasets.clear()
    verdict = gate(request, facts)
    assert not verdict.permit
    assert [check.code for check in verdict.checks] == ["evaluation_error"]


def test_a_body_of_another_kind_denies() -> None:
    """A command paired with the body of another kind is an error inside."""
    request, facts = build("charge", changed({**SCENE, "signers": [], **ASKED["charge"]}, {}))
    other, _ = build("post", changed({**SCENE, "signers": [], **ASKED["post"]}, {}))
    verdict = gate(dataclasses.replace(request, body=other.body), facts)
    assert [check.code for check in verdict.checks] == ["evaluation_error"]
    assert verdict.checks[0].text == "TypeError: a charge command cannot hold a Post"


def test_what_a_denial_says_of_an_error_is_short() -> None:
    """The first two hundred characters of what the error says."""
    request, facts = build("charge", changed({**SCENE, "signers": [], **ASKED["charge"]}, {}))
    odd = type("O" * 300, (), {})()
    verdict, whole = gate(dataclasses.replace(request, body=odd), facts), f"a charge command cannot hold a {'O' * 300}"
    assert verdict.checks[0].text == f"TypeError: {whole[:200]}"


@pytest.mark.parametrize("data", [b'{"\\ud800":1,"\\ud800":2}', b'{"\\ud800":1}', b"[" * 9999, b"\xff", b""])
def test_a_hostile_document_is_denied_in_words_that_can_be_recorded(data: bytes) -> None:
    """Its fault stands in the check, and the check has a canonical form."""
    scene = changed({**SCENE, **ASKED["policy"]}, {"entered": GONE})
    scene["body"] = {"document": digest(data), "signatures": [digest(data)]}
    request, facts = build("policy", scene)
    facts.store(data)
    verdict = gate(request, facts)
    assert [check.code for check in verdict.checks if not check.passed] == ["document_malformed"]
    assert all(dump(check.to_json()) for check in verdict.checks)


def test_the_same_request_gets_the_same_verdict() -> None:
    """A decision can be replayed."""
    assert decide("key_release") == decide("key_release")


def test_the_scene_has_a_merged_lineage() -> None:
    """The scene's merged organisation descends from the contract's consumer, two steps away."""
    _, facts = build("post", changed({**SCENE, "signers": [], **ASKED["post"]}, {}))
    merged = facts.organisations["did:web:bank-ab.example"].node
    assert facts.organisations[BANK_A].node in ancestors(facts.nodes, merged)
    assert facts.organisations[SRO].node not in ancestors(facts.nodes, merged)


def test_each_partition_of_a_release_is_checked_by_name() -> None:
    """A run over two partitions that one policy binds."""
    verdict = decide("key_release", {"partitions|1": {**PARTITION, "name": "2026-q2", "index": 21}})
    named = [check.text.partition(" ")[0] for check in verdict.checks if check.code == "policy_missing"]
    assert named == [REF, f"{HOSPITAL}/digits/2026-q2"]


def test_of_a_domain_without_a_policy_nobody_has_to_waive_anything() -> None:
    """No one issues one; under a policy its issuer is looked for among those who waive."""
    waiver = {
        "ends": "2026-12-01T00:00:00Z",
        "issuer": SRO,
        "pipeline": "f" * 64,
        "reason": "exact metrics",
        "waives": "metrics_exact",
    }
    requested = {"entered|waivers": [waiver], "signers": [HOSPITAL, BANK_A, SRO]}
    for policies, checks in (([], 0), ([POLICY], 1)):
        verdict = decide("contract", {**requested, "policies": policies})
        assert verdict.permit
        assert len([check for check in verdict.checks if check.code == "waiver_missing"]) == checks
