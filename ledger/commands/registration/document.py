"""A policy, recommendation, dataset or contract enters with the signatures it needs; the gate reads inside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.crypto import detached_jws
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Contract, Dataset, Facts, PolicyVersion
from ledger.domain.gate import Header
from ledger.domain.key_terms import key_refusal
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO, TDC, TDP, TSO
from ledger.wire.field_types import Sha256, distinct
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record


class EnterDocument(Record, frozen=True):
    """A policy, recommendation, dataset or contract: its digest and the digests of the signatures over it."""

    document: Sha256
    signatures: Annotated[tuple[Sha256, ...], distinct(32)]


class Entered(Record, frozen=True):
    """The document's header, as the entry records it."""

    header: Header


def decide(context: Context[EnterDocument]) -> Decision:
    """Decide the entering of a document."""
    verdict = context.require_permit(signers(context.facts, context.body, context.now))
    if verdict.header is None:
        raise AssertionError("a gate that permits a document gives its header")
    return Decision(Code.PERMITTED, derived=Entered(verdict.header).to_json())


def signers(facts: Facts, body: EnterDocument, now: int) -> tuple[str, ...]:
    """The signers of a document: owners of the keys whose signatures verify. Raises: Rejected, if any does not.

    Args:
        now: the time (ms) at which each key must be in force.
    """
    data = facts.documents.get(body.document)
    if data is None:
        raise Rejected(Code.NOT_FOUND, f"no document {body.document} was stored", "body.document")
    owners = []
    for place, name in enumerate(body.signatures):
        where = f"body.signatures[{place}]"
        stored = facts.documents.get(name)
        if stored is None:
            raise Rejected(Code.NOT_FOUND, f"no signature {name} was stored", where)
        try:
            owners.append(signer_of(facts, data, stored.decode("ascii"), now))
        except (Malformed, UnicodeDecodeError) as error:
            raise Rejected(Code.SIGNATURE_INVALID, str(error), where) from None
    return tuple(owners)


def signer_of(facts: Facts, data: bytes, signature: str, now: int) -> str:
    """The organisation whose detached JWS over some bytes this is, by a key in force (ms). Raises: Malformed."""
    key = facts.keys.get(detached_jws.key_id_of(signature))
    if key is None or key.charge is not None:
        raise Malformed("signature", "was made with a key that no organisation has registered")
    if refusal := key_refusal(facts, key.key_id, now):
        raise Malformed("signature", refusal)
    detached_jws.verify(signature, data, key.public)
    return key.owner


def _apply_policy(change: Change[EnterDocument]) -> None:
    header = change.recorded(Entered).header
    version = PolicyVersion(
        domain=header.domain,
        version=header.version,
        document=change.body.document,
        issuer=change.entry.actor,
        effective=header.starts,
        index=change.index,
    )
    policies = change.state.policies
    policies[version.domain] = (*policies.get(version.domain, ()), version)


def _apply_dataset(change: Change[EnterDocument]) -> None:
    header, provider = change.recorded(Entered).header, change.entry.actor
    dataset = Dataset(provider, header.id, header.domain, change.body.document, change.index)
    change.state.datasets[provider, dataset.dataset] = dataset


def _apply_recommendation(change: Change[EnterDocument]) -> None:
    header = change.recorded(Entered).header
    (provider,) = header.providers
    place = provider, header.id
    change.state.datasets[place] = replace(change.state.datasets[place], recommendation=change.body.document)


def _apply_contract(change: Change[EnterDocument]) -> None:
    state, header, document = change.state, change.recorded(Entered).header, change.body.document
    # A new version goes on counting the runs of the one it replaces.
    replaced = state.contracts.get(state.contract_heads.get(header.id, ""))
    state.contracts[document] = Contract(
        document=document,
        id=header.id,
        version=header.version,
        consumer=header.consumer,
        consumer_node=state.organisations[header.consumer].node,
        providers=header.providers,
        starts=header.starts,
        ends=header.ends,
        runs=replaced.runs if replaced else 0,
        index=change.index,
    )
    state.contract_heads[header.id] = document


POLICY: Final = CommandKind(
    "policy",
    EnterDocument,
    decide,
    (SRO,),
    "/v1/policies",
    _apply_policy,
    recorded=Entered,
    binds_all=True,
    changes_prices=True,
)
DATASET: Final = CommandKind(
    "dataset", EnterDocument, decide, (TDP,), "/v1/datasets", _apply_dataset, recorded=Entered, changes_prices=True
)
CONTRACT: Final = CommandKind(
    "contract",
    EnterDocument,
    decide,
    (TDP, TDC),
    "/v1/contracts",
    _apply_contract,
    recorded=Entered,
    changes_prices=True,
)
RECOMMENDATION: Final = CommandKind(
    "recommendation",
    EnterDocument,
    decide,
    (TSO,),
    "/v1/recommendations",
    _apply_recommendation,
    recorded=Entered,
    changes_prices=True,
)
