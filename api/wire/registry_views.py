"""The registry as JSON: organisations, keys, policies, datasets, and what was decided."""

from __future__ import annotations

from typing import Final

from api.http.json_schema import (
    BYTES_32,
    COUNT,
    DID,
    DIGEST,
    ETAG,
    INDEX,
    NAME,
    NODE,
    TIME,
    TOLD,
    WORDS,
    nullable,
    one_of,
    page,
    record,
    several,
)
from api.wire.request_schemas import SIGNING
from ledger.domain.commands import ROLES, RegisterOrganisation, read_body
from ledger.domain.entries import Entry
from ledger.domain.facts import Dataset, Organisation, PolicyVersion
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.documents import Recommendation

_MOVE: Final = record({"node": NODE, "since": TIME}, title="Move", description="where it stands from then on")
ORGANISATION: Final = record(
    {
        "index": INDEX,
        "moves": several(_MOVE),
        "name": WORDS,
        "node": NODE,
        "organisation": DID,
        "roles": several(one_of(*ROLES)),
    },
    title="Organisation",
    description="a legal body, and where it has stood in the lineage",
)


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


KEYS: Final = page(
    record(
        {"index": INDEX, "key": SIGNING, "key_id": BYTES_32, "owner": DID, "since": TIME},
        title="OwnedKey",
        description="a signing key and whose it is; its id is the thumbprint of RFC 7638",
    )
)


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


POLICY_VERSION: Final = record(
    {"document": DIGEST, "domain": NAME, "effective": TIME, "index": INDEX, "issuer": DID, "version": COUNT},
    title="PolicyVersion",
    description="one version of a domain's policy; what it says is in its document",
)
POLICY: Final = record({"domain": NAME, "versions": several(POLICY_VERSION)}, title="PolicyVersions")


STORED: Final = record(
    {"document": DIGEST, "replaces": nullable(ETAG), "signature": DIGEST},
    title="Stored",
    description="the digests of a document and of the signature over it; replaces is what If-Match will name",
)
HEAD: Final = record({"document": DIGEST, "id": NAME, "version": COUNT}, title="ContractHead")


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


DATASET: Final = record(
    {
        "dataset": NAME,
        "document": DIGEST,
        "domain": NAME,
        "index": INDEX,
        "provider": DID,
        "recommendation": nullable(DIGEST),
    },
    title="Dataset",
    description="a dataset; what it is described as is in its document",
)


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


RECOMMENDATION: Final = record(
    {
        "dataset": NAME,
        "delta_max": TOLD,
        "document": DIGEST,
        "epsilon_max": TOLD,
        "id": NAME,
        "issuer": DID,
        "provider": DID,
        "version": COUNT,
    },
    title="Recommendation",
    description="a TSO's newest proposal for a dataset",
)


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
