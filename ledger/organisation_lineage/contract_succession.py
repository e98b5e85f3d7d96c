"""Which organisations continue a contract: who signed it as consumer, and who became of it."""

from __future__ import annotations

from ledger.domain.facts import Contract, Facts, Organisation
from ledger.domain.organisation_graph import ancestors, joint_nodes


def continues(
    facts: Facts, organisation: Organisation, contract: Contract, joint: frozenset[int] | None = None
) -> bool:
    """Whether an organisation is the consumer of a contract, as it was when it signed, or descends from it.

    Args:
        joint: the nodes where organisations are without being one body; by default those of
            :func:`ledger.domain.organisation_graph.joint_nodes`. A contract signed at one stays its signer's.
    """
    joint = joint_nodes(facts.nodes, organisation.node) if joint is None else joint
    visited = (node for _, node in organisation.moves)
    if contract.consumer_node not in ancestors(facts.nodes, organisation.node, visited, contract.index, joint):
        return False
    return contract.consumer_node not in joint or organisation.did == contract.consumer
