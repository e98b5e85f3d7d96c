"""The registry as JSON: organisations, keys, policies, datasets, and what was decided."""

from __future__ import annotations

from ledger import canonical as c
from ledger.commands import RegisterOrganisation, read_body
from ledger.entries import Entry
from ledger.registry import Dataset, Organisation, PolicyVersion
from ledger.units import format_number
from policy.documents import Recommendation


def organisation(found: Organisation) -> c.Object:
    """A legal body, and where it has stood in the lineage."""
    return {
        "index": found.index,
        "moves": [{"node": node, "since": since} for since, node in found.moves],
        "name": found.name,
        "node": found.node,
        "organisation": found.did,
        "roles": list(found.roles),
    }


def signing_key(entry: Entry, index: int) -> c.Object:
    """The key that an organisation was registered with."""
    body = read_body(entry.command)
    assert isinstance(body, RegisterOrganisation)
    return {
        "index": index,
        "key": body.key.to_json(),
        "key_id": body.key.thumbprint,
        "owner": body.organisation,
        "since": entry.time,
    }


def policy_version(found: PolicyVersion) -> c.Object:
    """One version of a domain's policy; what it says is in its document."""
    return {
        "document": found.document,
        "domain": found.domain,
        "effective": found.effective,
        "index": found.index,
        "issuer": found.issuer,
        "version": found.version,
    }


def dataset(found: Dataset) -> c.Object:
    """A dataset; what it is described as is in its document."""
    return {
        "dataset": found.dataset,
        "document": found.document,
        "domain": found.domain,
        "index": found.index,
        "provider": found.provider,
        "recommendation": found.recommendation,
    }


def recommendation(found: Recommendation, document: str) -> c.Object:
    """A TSO's newest proposal for a dataset."""
    return {
        "dataset": found.dataset,
        "delta_max": format_number(found.delta_max),
        "document": document,
        "epsilon_max": format_number(found.epsilon_max),
        "id": found.id,
        "issuer": found.issuer,
        "provider": found.provider,
        "version": found.version,
    }


def decision(entry: Entry, index: int) -> c.Object:
    """What was decided on a command, with every check that is on record: all of a refusal."""
    return {
        "actor": entry.actor,
        "checks": entry.body.get("checks", []),
        "detail": entry.body.get("detail", ""),
        "id": entry.id,
        "index": index,
        "key_id": entry.key_id,
        "kind": entry.kind,
        "outcome": entry.code.word,
        "permit": not entry.code.refused,
        "request": entry.request,
        "time": entry.time,
    }
