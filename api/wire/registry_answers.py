"""Answers about the registry: organisations, keys, policies, datasets, contracts and documents."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta

from api.http.field_types import Count, Digest, EntityTag, Index, KeyBytes, Node, ReportedNumber, Time, one_of
from api.wire.command_requests import Signing
from ledger.commands.entry import Entry
from ledger.commands.registration.organisation import ORGANISATION
from ledger.domain import facts
from ledger.domain.roles import ORGANISATION_ROLES
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Did, Name, text
from ledger.wire.records import Record
from policy import documents


class Move(Record, frozen=True):
    """An organisation's node in the lineage from a time on."""

    node: Node
    since: Time


class Organisation(Record, frozen=True):
    """A legal body, and its nodes in the lineage over time."""

    index: Index
    moves: tuple[Move, ...]
    name: Annotated[str, text(200)]
    node: Node
    organisation: Did
    roles: tuple[Annotated[str, one_of(*ORGANISATION_ROLES)], ...]

    @classmethod
    def of_record(cls, record: facts.Organisation) -> Self:
        """As the registry has it."""
        moves = tuple(Move(node=node, since=since) for since, node in record.moves)
        return cls.project(record, moves=moves, organisation=record.did)


class OwnedKey(Record, frozen=True):
    """A signing key and its owner; its id is the thumbprint of RFC 7638."""

    index: Index
    key: Signing
    key_id: KeyBytes
    owner: Did
    since: Time

    @classmethod
    def of_registration(cls, entry: Entry, index: int) -> Self:
        """The key that an organisation was registered with."""
        body = ORGANISATION.read_body(entry.command)
        key = body.key
        return cls(index=index, key=key, key_id=key.thumbprint, owner=body.organisation, since=entry.time)


class PolicyVersion(Record, frozen=True):
    """One version of a domain's policy; its document holds its text."""

    document: Digest
    domain: Name
    effective: Time
    index: Index
    issuer: Did
    version: Count


class PolicyVersions(Record, frozen=True):
    """A domain's policy with all its versions."""

    domain: Name
    versions: tuple[PolicyVersion, ...]


class Dataset(Record, frozen=True):
    """A dataset; its document describes it."""

    dataset: Name
    document: Digest
    domain: Name
    index: Index
    provider: Did
    recommendation: Digest | None


class Recommendation(Record, frozen=True):
    """The newest budget that a TSO recommends for a dataset."""

    dataset: Name
    delta_max: ReportedNumber
    document: Digest
    epsilon_max: ReportedNumber
    id: Name
    issuer: Did
    provider: Did
    version: Count

    @classmethod
    def of_document(cls, document: documents.Recommendation, digest: str) -> Self:
        """What a stored recommendation says; ``digest`` is of its bytes."""
        delta, epsilon = format_number(document.budget.delta_max), format_number(document.budget.epsilon_max)
        return cls.project(document, document=digest, delta_max=delta, epsilon_max=epsilon)


class Contract(Record, frozen=True):
    """A contract in its current state; its document holds its terms."""

    consumer: Did
    document: Digest
    ends: Time
    id: Name
    index: Index
    providers: tuple[Did, ...]
    revoked: bool
    runs: Annotated[int, Meta(ge=0, le=2**53 - 1, description="charged under it so far")]
    starts: Time
    version: Count


class ContractHead(Record, frozen=True):
    """The newest version of a contract; it changes with a new version alone."""

    document: Digest
    id: Name
    version: Count


class Stored(Record, frozen=True):
    """The digests of a document and of the signature over it; replaces is the tag that If-Match will name."""

    document: Digest
    replaces: EntityTag | None
    signature: Digest
