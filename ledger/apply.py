"""Apply an entry to what stands: the one place where facts change, for the writer and for replay alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from ledger import canonical as c
from ledger.commands import (
    MakeCharge,
    OpenPartition,
    Post,
    RegisterOrganisation,
    ReleaseKey,
    Retire,
)
from ledger.drawing import Drawing, registered
from ledger.entries import Entry
from ledger.governing_changes import GOVERNING_CHANGES
from ledger.graph import knowers
from ledger.lineage_changes import LINEAGE_CHANGES, redraw
from ledger.loss import Loss, Segment, loss_of
from ledger.outcomes import ChargeState, Code
from ledger.registry import (
    GLOBAL,
    Account,
    Charge,
    Contract,
    Dataset,
    Organisation,
    Partition,
    PolicyVersion,
    SigningKey,
    State,
    holder_of,
)
from ledger.rules import read_rule
from ledger.units import parse_number


def apply(state: State, entry: Entry, index: int) -> None:
    """Make the entry at ``index`` true. A refusal changes nothing but the log."""
    change = _CHANGES.get(entry.kind)
    if change is not None and not entry.code.refused:
        change(state, entry, index)


def _organisation(state: State, entry: Entry, index: int) -> None:
    body = entry.asked
    assert isinstance(body, RegisterOrganisation)
    did, key = body.organisation, body.key
    state.organisations[did] = Organisation(did, body.name, body.roles, index, index, ((entry.time, index),))
    state.keys[key.thumbprint] = SigningKey(key.thumbprint, did, key.x, None, index)
    redraw(state, registered(Drawing(state, index, entry.time), did), entry.time)


def _policy(state: State, entry: Entry, index: int) -> None:
    header = _header(entry)
    version = PolicyVersion(
        domain=header["domain"],
        version=header["version"],
        document=_text(entry.request, "document"),
        issuer=entry.actor,
        effective=header["starts"],
        index=index,
    )
    state.policies[version.domain] = (*state.policies.get(version.domain, ()), version)


def _dataset(state: State, entry: Entry, index: int) -> None:
    header = _header(entry)
    found = Dataset(entry.actor, header["id"], header["domain"], _text(entry.request, "document"), index)
    state.datasets[found.provider, found.dataset] = found


def _recommendation(state: State, entry: Entry, index: int) -> None:
    del index
    header = _header(entry)
    (provider,) = header["providers"]
    found = state.datasets[provider, header["id"]]
    state.datasets[provider, header["id"]] = replace(found, recommendation=_text(entry.request, "document"))


def _partition(state: State, entry: Entry, index: int) -> None:
    body = entry.asked
    assert isinstance(body, OpenPartition)
    state.partitions[body.ref] = Partition(
        ref=body.ref,
        provider=body.provider,
        dataset=body.dataset,
        epsilon=parse_number(body.epsilon, "epsilon"),
        delta=parse_number(body.delta, "delta"),
        relation=body.relation,
        unit=body.unit,
        unit_records_max=body.unit_records_max,
        records=body.records,
        data_key=body.data_key,
        terms=c.dump(entry.body["terms"]).decode(),
        opened=entry.time,
        retired=False,
        index=index,
        commitments=body.commitments,
    )


def _retirement(state: State, entry: Entry, index: int) -> None:
    del index
    body = entry.asked
    assert isinstance(body, Retire)
    state.partitions[body.partition] = replace(state.partitions[body.partition], retired=True)


def _contract(state: State, entry: Entry, index: int) -> None:
    header, document = _header(entry), _text(entry.request, "document")
    # A new version goes on counting the runs of the one it replaces.
    replaced = state.contracts.get(state.contract_heads.get(header["id"], ""))
    state.contracts[document] = Contract(
        document=document,
        id=header["id"],
        version=header["version"],
        consumer=header["consumer"],
        consumer_node=state.organisations[header["consumer"]].node,
        providers=tuple(header["providers"]),
        starts=header["starts"],
        ends=header["ends"],
        runs=replaced.runs if replaced else 0,
        index=index,
    )
    state.contract_heads[header["id"]] = document


def _charge(state: State, entry: Entry, index: int) -> None:
    body = entry.asked
    assert isinstance(body, MakeCharge)
    recorded: Any = entry.body
    found = Charge(
        id=entry.id,
        contract=body.contract,
        actor=entry.actor,
        author=recorded["author"],
        partitions=body.partitions,
        plan=body.plan.digest,
        steps=body.plan.steps,
        steps_posted=None,
        state=ChargeState.PENDING,
        key_id=body.signing.thumbprint,
        sealing=body.sealing.x,
        key_release=None,
        deadline=body.deadline,
        prices=tuple((ref, read_prices(recorded["prices"][ref])) for ref in body.partitions),
        recipients=body.recipients,
        base=body.base,
        pipeline=body.pipeline,
        index=index,
    )
    state.charges[found.id] = found
    state.keys[found.key_id] = SigningKey(found.key_id, entry.actor, body.signing.x, found.id, index)
    contract = state.contracts[body.contract]
    state.contracts[body.contract] = contract._replace(runs=contract.runs + 1)
    for account, segments in _touched(state, found):
        ref, holder, posted, pending = account
        state.accounts[ref, holder] = Account(ref, holder, posted, pending + loss_of(segments, found.steps))


def read_prices(segments: Any) -> tuple[Segment, ...]:  # noqa: ANN401 - JSON as recorded
    """The prices of one partition as a charge's entry records them; equal ones are one value."""
    return _segments(c.spelled(segments))


@lru_cache(maxsize=4_096)
def _segments(spelled: bytes) -> tuple[Segment, ...]:
    segments: Any = c.parse(spelled, len(spelled))
    return tuple(Segment(one["steps"], tuple(one["price"]), one["unit"]) for one in segments)


def _touched(state: State, found: Charge) -> Iterator[tuple[Account, tuple[Segment, ...]]]:
    """Everyone's account and those of all who may know this charge, on each partition."""
    holders = _holders(knowers(state.nodes, found.author, found.index))
    for ref, segments in found.prices:
        for holder in holders:
            yield state.accounts.get((ref, holder)) or _empty(state, ref, holder), segments


@lru_cache(maxsize=1_024)
def _holders(nodes: frozenset[int]) -> tuple[str, ...]:
    return GLOBAL, *(holder_of(node) for node in sorted(nodes))


def _empty(state: State, ref: str, holder: str) -> Account:
    zero = Loss.zero(len(read_rule(state.partitions[ref].terms).coordinates))
    return Account(ref, holder, zero, zero)


def _settle(state: State, found: Charge, steps: int, code: Code) -> None:
    """Move what ran from pending to posted; the rest of it goes back to headroom."""
    for account, segments in _touched(state, found):
        ref, holder, before, pending = account
        rest = pending - loss_of(segments, found.steps)
        state.accounts[ref, holder] = Account(ref, holder, before + loss_of(segments, steps), rest)
    posted = code is Code.POSTED
    state.charges[found.id] = found._replace(
        state=ChargeState.POSTED if posted else ChargeState.VOIDED,
        steps_posted=steps if posted else None,
    )
    if not posted:
        contract = state.contracts[found.contract]
        state.contracts[found.contract] = contract._replace(runs=contract.runs - 1)


def _post(state: State, entry: Entry, index: int) -> None:
    del index
    body = entry.asked
    assert isinstance(body, Post)
    _settle(state, state.charges[body.charge], body.steps, entry.code)


def _close(state: State, entry: Entry, index: int) -> None:
    del index
    found = state.charges[_text(entry.request, "charge")]
    _settle(state, found, found.steps if entry.code is Code.POSTED else 0, entry.code)


def _key_release(state: State, entry: Entry, index: int) -> None:
    del index
    body = entry.asked
    assert isinstance(body, ReleaseKey)
    state.charges[body.charge] = state.charges[body.charge]._replace(key_release=entry.id)


_CHANGES: Final[dict[str, Callable[[State, Entry, int], None]]] = {
    "organisation": _organisation,
    "policy": _policy,
    "dataset": _dataset,
    "partition": _partition,
    "retirement": _retirement,
    "contract": _contract,
    "charge": _charge,
    "post": _post,
    "void": _close,
    "lapse": _close,
    "key_release": _key_release,
    "recommendation": _recommendation,
    **GOVERNING_CHANGES,
    **LINEAGE_CHANGES,
}


def _header(entry: Entry) -> dict[str, Any]:
    header = entry.body["header"]
    assert isinstance(header, dict)
    return header


def _text(body: c.Object, name: str) -> str:
    value = body[name]
    assert isinstance(value, str)
    return value
