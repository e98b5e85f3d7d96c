"""How accounts are named to people, holder by holder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.organisation_graph import Node, NodeKind
from ledger.organisation_lineage.holder_names import holder_name, organisation_names
from tests.factories.memory import PermissiveWorld
from tests.factories.people import BANKS, SRO

ONE, OTHER, THIRD = BANKS[:3]
GONE = "did:web:gone.example"


def world() -> PermissiveWorld:
    """With nodes of every kind; two banks are of one name."""
    found = PermissiveWorld.settled()
    state = found.state
    state.organisations[ONE] = replace(state.organisations[ONE], name="First Bank")
    for did in (OTHER, THIRD):
        state.organisations[did] = replace(state.organisations[did], name="Savings Bank")
    nodes = (
        (NodeKind.COALITION, SRO, (THIRD, ONE)),
        (NodeKind.MODEL, ONE, ()),
        (NodeKind.PUBLIC, GONE, ()),
        (NodeKind.ORGANISATION, ONE, (ONE,)),
        (NodeKind.ORGANISATION, OTHER, ()),
        (NodeKind.ORGANISATION, SRO, (OTHER, THIRD)),
    )
    for at, (kind, organisation, members) in enumerate(nodes, 100):
        state.nodes[at] = Node(at, 0, kind, organisation, (), (), members, None)
    return found


@pytest.mark.parametrize(
    ("holder", "name"),
    [
        (GLOBAL, "everyone"),
        (holder_of(100), "the coalition of First Bank, Savings Bank"),
        (holder_of(101), "a model that First Bank gave away"),
        (holder_of(102), f"a model that {GONE} made public"),
        (holder_of(103), "First Bank"),
        (holder_of(104), "Savings Bank, before it changed"),
        (holder_of(105), f"{OTHER}, {THIRD}"),
        (holder_of(999), "a hypothetical lineage"),
    ],
)
def test_a_holder_is_named(holder: str, name: str) -> None:
    """By its organisations; by their DIDs where two have one name."""
    assert holder_name(world().state, holder) == name


def test_organisations_that_are_unknown_are_left_out() -> None:
    """And the others are in the order of their DIDs."""
    state = world().state
    assert organisation_names(state, (THIRD, GONE, ONE)) == "First Bank, Savings Bank"
    assert not organisation_names(state, (GONE,))
