"""Whether a contract is in force, and which version of a stream binds a slice: to the millisecond and to the entry."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ledger.domain.facts import Contract, Facts
from policy.decisions.documents_in_force import contract_in_force
from policy.decisions.streams_in_force import is_slice, shown_at_most, slice_terms, slices_of
from tests.factories.decision_facts import build
from tests.factories.decision_scene import ASKED, CONTRACT, PARTITION, SCENE, STREAM
from tests.factories.path_changes import changed
from tests.factories.people import HOSPITAL


def _facts(**change: Any) -> Facts:  # noqa: ANN401 - JSON
    """Of the scene, changed."""
    return build("charge", changed({**SCENE, "signers": [], **ASKED["charge"]}, change))[1]


def test_a_contract_is_in_force_from_its_start_to_before_its_end() -> None:
    """In force at its first millisecond and its last one; revoked or superseded at no time."""
    facts = _facts()
    (contract,) = facts.contracts.values()
    inside = contract.starts, contract.ends - 1
    outside = contract.starts - 1, contract.ends, contract.ends + 1
    for now in (*inside, *outside):
        document = contract_in_force(facts, contract, now)
        assert (document is not None) == (now in inside)
        assert document is None or document.version == CONTRACT["version"]
        assert contract_in_force(facts, contract._replace(revoked=True), now) is None
        superseded: Contract = contract._replace(document="0" * 64)
        assert contract_in_force(facts, superseded, now) is None


VERSIONS = [
    {**STREAM, "budget": {"delta": "0.00001", "epsilon": "6"}, "life_days": 60, "window_max": 52},
    {**STREAM, "budget": {"delta": "0.00002", "epsilon": "5"}, "life_days": 90, "version": 2, "window_max": 20},
    {**STREAM, "budget": {"delta": "0.00001", "epsilon": "4"}, "life_days": 40, "version": 3, "window_max": 30},
]
AT = (15, 25, 35)
"""The entries of the versions."""
SLICES = {"before": 10, "first": 20, "second": 30, "third": 40}


def _streamed(versions: int) -> Facts:
    opened = [{**PARTITION, "name": name, "index": index} for name, index in SLICES.items()]
    return _facts(streams=VERSIONS[:versions], stream_indexes=list(AT[:versions]), partitions=opened)


@pytest.mark.parametrize(
    ("name", "stream", "life", "window"),
    [("first", 1, (40, 3), (20, 2)), ("second", 2, (40, 3), (20, 2)), ("third", 3, (40, 3), (30, 3))],
)
def test_a_slice_has_the_tightest_terms_since_it_opened(
    name: str, stream: int, life: tuple[int, int], window: tuple[int, int]
) -> None:
    """Of the version under which it opened and all after it; each with the version that states it."""
    facts = _streamed(3)
    terms = slice_terms(facts, facts.partitions[f"{HOSPITAL}/digits/{name}"])
    assert terms is not None
    assert terms.stream.version == stream
    assert (terms.life_days, terms.window_max) == (life[0], window[0])
    assert (terms.life_source, terms.window_source) == tuple(
        f"{terms.stream.source.rpartition(' ')[0]} {version}" for version in (life[1], window[1])
    )


def test_what_opened_before_the_stream_is_no_slice() -> None:
    """Nor is anything where there is no stream; the slices stand in the order in which they opened."""
    facts = _streamed(3)
    every = [facts.partitions[f"{HOSPITAL}/digits/{name}"] for name in ("third", "before", "second", "first")]
    assert [is_slice(facts, one) for one in every] == [True, False, True, True]
    assert slice_terms(facts, every[1]) is None
    assert [one.index for one in slices_of(facts, HOSPITAL, "digits", every)] == [20, 30, 40]
    assert slices_of(facts, HOSPITAL, "letters", every) == ()
    assert not any(is_slice(_streamed(0), one) for one in every)


@pytest.mark.parametrize(
    ("names", "epsilon", "delta"),
    [((), "4", "0.00001"), (("third",), "4", "0.00001"), (("second",), "5", "0.00002"), (("first",), "6", "0.00001")],
)
def test_slices_together_show_at_most_the_greatest_of_their_versions(
    names: tuple[str, ...], epsilon: str, delta: str
) -> None:
    """Of those under which one opened, and of the newest."""
    facts = _streamed(3)
    opened = [facts.partitions[f"{HOSPITAL}/digits/{name}"] for name in names]
    found = shown_at_most(facts, HOSPITAL, "digits", opened)
    assert (found.epsilon, found.delta) == (Fraction(epsilon), Fraction(delta))
