"""Apply an entry to the state: the one place where state changes, for the writer and for replay alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ledger.domain.commands import OpenPartition, RegisterOrganisation, Retire
from ledger.domain.entries import Entry
from ledger.domain.facts import Contract, Dataset, Organisation, Partition, PolicyVersion, SigningKey, State
from ledger.lineage.graph_edits import LineageEdit, register
from ledger.transitions import apply_charges
from ledger.transitions.apply_charges import Said, Sums
from ledger.transitions.apply_lineage import LINEAGE_CHANGES, apply_edit
from ledger.transitions.apply_revocations_and_decrees import GOVERNING_CHANGES
from ledger.wire import canonical_json as c


def apply(state: State, entry: Entry, index: int) -> None:
    """Make the entry at ``index`` true."""
    sums = Sums(state)
    make(state, said(entry), index, sums)
    sums.put()


def said(entry: Entry) -> Said | Entry | None:
    """What applying an entry takes of it, read off the entry alone; None if it changes nothing but the log.

    Of nearly all entries that is little, so that another process may read them and hand this over. Raises: Malformed.
    """
    if entry.code.refused:
        return None
    reader = apply_charges.READERS.get(entry.kind)
    if reader is not None:
        return reader(entry)
    return entry if entry.kind in _CHANGES else None


def make(state: State, said: Said | Entry | None, index: int, sums: Sums) -> None:
    """Apply what the entry at ``index`` says; accounts change once the caller puts ``sums`` down.

    Raises:
        KeyError, AssertionError: where that cannot be.
    """
    if isinstance(said, Entry):
        # What is no run may look at accounts.
        sums.put()
        _CHANGES[said.kind](state, said, index)
    elif said is not None:
        apply_charges.make(state, said, index, sums)


def _organisation(state: State, entry: Entry, index: int) -> None:
    body = entry.command_body
    assert isinstance(body, RegisterOrganisation)
    did, key = body.organisation, body.key
    state.organisations[did] = Organisation(did, body.name, body.roles, index, ((entry.time, index),), index)
    state.keys[key.thumbprint] = SigningKey(key.thumbprint, did, key.x, None, index)
    apply_edit(state, register(LineageEdit(state, index, entry.time), did), entry.time)


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
    body = entry.command_body
    assert isinstance(body, OpenPartition)
    state.partitions[body.ref] = Partition(
        ref=body.ref,
        provider=body.provider,
        dataset=body.dataset,
        epsilon=body.epsilon,
        delta=body.delta,
        relation=body.relation,
        unit=body.unit,
        unit_records_max=body.unit_records,
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
    body = entry.command_body
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


_CHANGES: Final[dict[str, Callable[[State, Entry, int], None]]] = {
    "organisation": _organisation,
    "policy": _policy,
    "dataset": _dataset,
    "partition": _partition,
    "retirement": _retirement,
    "contract": _contract,
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
