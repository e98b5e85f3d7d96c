"""Azure's grammar against a model of it, and its limits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.wire.malformed import Malformed
from policy.documents.attestation_conditions import CONDITIONS_MAX, DEPTH_MAX, ReleasePolicy

AUTHORITY = "https://attester.example"
CLAIMS: dict[str, Any] = {"a": 3, "b": "three", "c": True, "deep": {"d": 1, "e": {"f": "g"}}, "dotted.name": 7}


def stated(*conditions: dict[str, Any], word: str = "allOf") -> dict[str, Any]:
    """A policy of one block."""
    return {"anyOf": [{"authority": AUTHORITY, word: list(conditions)}], "version": "1.0.0"}


def met(*conditions: dict[str, Any], word: str = "allOf") -> bool:
    """Whether the claims meet it."""
    return not ReleasePolicy.parse(stated(*conditions, word=word)).unmet(AUTHORITY, CLAIMS)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"claim": "a", "equals": 3}, True),
        ({"claim": "a", "equals": "3"}, False),
        ({"claim": "a", "equals": True}, False),
        ({"claim": "c", "equals": True}, True),
        ({"claim": "c", "equals": "true"}, False),
        ({"claim": "c", "equals": 1}, False),
        ({"claim": "a", "notEquals": 4}, True),
        ({"claim": "a", "notEquals": 3}, False),
        ({"claim": "a", "notEquals": "4"}, False),
        ({"claim": "missing", "notEquals": 4}, False),
        ({"claim": "a", "less": 4}, True),
        ({"claim": "a", "less": 3}, False),
        ({"claim": "a", "lessOrEquals": 3}, True),
        ({"claim": "a", "lessOrEquals": 2}, False),
        ({"claim": "a", "greater": 2}, True),
        ({"claim": "a", "greater": 3}, False),
        ({"claim": "a", "greaterOrEquals": 3}, True),
        ({"claim": "a", "greaterOrEquals": 4}, False),
        ({"claim": "c", "greaterOrEquals": 0}, False),
        ({"claim": "b", "less": 9}, False),
        ({"claim": "a", "exists": True}, True),
        ({"claim": "a", "exists": False}, False),
        ({"claim": "missing", "exists": False}, True),
        ({"claim": "missing", "exists": True}, False),
        ({"claim": "deep.d", "equals": 1}, True),
        ({"claim": "deep.e.f", "equals": "g"}, True),
        ({"claim": "deep.x", "exists": True}, False),
        ({"claim": "a.x", "exists": True}, False),
        ({"claim": "dotted.name", "equals": 7}, True),
    ],
)
def test_each_operator_on_both_sides(condition: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - a table's column
    """Values of another type meet nothing."""
    assert met(condition) is expected


_LEAVES = st.sampled_from([({"claim": "a", "equals": 3}, True), ({"claim": "a", "equals": 4}, False)])
_TREES = st.recursive(
    _LEAVES.map(lambda pair: ("leaf", *pair)),
    lambda parts: st.tuples(st.sampled_from(["allOf", "anyOf"]), st.lists(parts, min_size=1, max_size=3)),
    max_leaves=8,
)


def _spelled(tree: Any) -> dict[str, Any]:  # noqa: ANN401 - a recursive tuple
    return tree[1] if tree[0] == "leaf" else {tree[0]: [_spelled(part) for part in tree[1]]}


def _holds(tree: Any) -> bool:  # noqa: ANN401 - a recursive tuple
    if tree[0] == "leaf":
        return bool(tree[2])
    return (all if tree[0] == "allOf" else any)(map(_holds, tree[1]))


def _depth(tree: Any) -> int:  # noqa: ANN401 - a recursive tuple
    return 0 if tree[0] == "leaf" else 1 + max(map(_depth, tree[1]))


@given(_TREES)
def test_nested_groups_mean_all_and_any(tree: Any) -> None:  # noqa: ANN401 - a recursive tuple
    """Against Python's own ``all`` and ``any``."""
    if _depth(tree) < DEPTH_MAX:
        assert met(_spelled(tree)) is _holds(tree)


def test_any_block_of_the_authority_will_do() -> None:
    """Two blocks for one authority; another's block counts for nothing."""
    good, bad = {"claim": "a", "equals": 3}, {"claim": "a", "equals": 4}
    blocks = [{"allOf": [bad], "authority": AUTHORITY}, {"allOf": [good], "authority": AUTHORITY}]
    policy = ReleasePolicy.parse({"anyOf": blocks, "version": "0.2"})
    assert policy.unmet(AUTHORITY, CLAIMS) == ""
    blocks[1]["authority"] = f"{AUTHORITY}/"
    policy = ReleasePolicy.parse({"anyOf": blocks, "version": "0.2"})
    assert policy.unmet(AUTHORITY, CLAIMS) == "a equals 4"
    assert policy.unmet("https://other.example", CLAIMS) == "no block names this authority"


def _nested(depth: int) -> dict[str, Any]:
    condition: dict[str, Any] = {"claim": "a", "equals": 3}
    for _ in range(depth):
        condition = {"allOf": [condition]}
    return condition


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ([], ""),
        ({"anyOf": []}, "version"),
        ({"anyOf": [], "version": "1.0.0"}, "anyOf"),
        ({"anyOf": [{}], "version": "1.0.0"}, "anyOf[0].authority"),
        ({"anyOf": [{"authority": AUTHORITY}], "version": "1.0.0"}, "anyOf[0]"),
        ({"anyOf": [{"allOf": [], "authority": AUTHORITY}], "version": "1.0.0"}, "anyOf[0].allOf"),
        (stated({"claim": "a"}), "anyOf[0].allOf[0]"),
        (stated({"claim": "a", "equals": 1, "less": 2}), "anyOf[0].allOf[0]"),
        (stated({"claim": "a", "matches": "b"}), "anyOf[0].allOf[0].matches"),
        (stated({"claim": "a", "less": "b"}), "anyOf[0].allOf[0].less"),
        (stated({"claim": "a", "less": True}), "anyOf[0].allOf[0].less"),
        (stated({"claim": "a", "exists": "true"}), "anyOf[0].allOf[0].exists"),
        (stated({"claim": "a", "equals": None}), "anyOf[0].allOf[0].equals"),
        (stated({"claim": "", "equals": 1}), "anyOf[0].allOf[0].claim"),
        (stated(_nested(DEPTH_MAX)), "anyOf[0]" + ".allOf[0]" * DEPTH_MAX),
        (stated(*[{"claim": "a", "equals": 1}] * (CONDITIONS_MAX + 1)), f"anyOf[0].allOf[{CONDITIONS_MAX}]"),
    ],
)
def test_anything_else_is_malformed(policy: object, field: str) -> None:
    """An operator unknown, a value of a wrong type, too many or too deep: the field is named."""
    with pytest.raises(Malformed) as caught:
        ReleasePolicy.parse(policy)
    assert caught.value.field == field
