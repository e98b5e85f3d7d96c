"""Answers about the registry: organisations, keys, policies, datasets, contracts and documents."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta

from api.http.field_types import Count, Digest, EntityTag, Index, KeyBytes, Node, ReportedNumber, Time, one_of
from api.wire.command_requests import Signing
from ledger.commands.entry import Entry
from ledger.domain import facts
from ledger.domain.key_terms import KeyTerms
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
    """A signing key and its owner; its id is the thumbprint of RFC 7638.

    Its signatures count from ``since`` until ``until``, unless the entry ``revoked_by`` has revoked it or
    ``suspended_by`` has suspended it; what is not the case is absent.
    ``entered_by`` is the key that signed the entry that brought it.
    """

    index: Index
    key: Signing
    key_id: KeyBytes
    owner: Did
    since: Time
    entered_by: KeyBytes
    in_force: bool
    until: Time | None = None
    suspended_by: Did | None = None
    revoked_by: Index | None = None

    @classmethod
    def of_key(cls, key: facts.SigningKey, terms: KeyTerms, entry: Entry, now: int) -> Self:
        """A key with its terms at a time (ms); ``entry`` is the one that brought it."""
        return cls(
            index=key.index,
            key=key.public,
            key_id=key.key_id,
            owner=key.owner,
            since=terms.starts or entry.time,
            entered_by=entry.key_id,
            in_force=not terms.refusal(now),
            until=terms.until,
            suspended_by=terms.suspended_by,
            revoked_by=terms.revoked,
        )


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
