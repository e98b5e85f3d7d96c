"""Routes that read what is charged: partitions, streams, accounts, those that are frozen, and charges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeVar

from fastapi import Query
from fastapi.responses import PlainTextResponse, Response

from api.auth.authorisation import Caller, sees_entry
from api.auth.guessable_proofs import ProofReader
from api.auth.visibility import get_visible, not_found, visible_partition
from api.http.field_types import PathDid, PathHolder, PathName, PathRef, QueryRef
from api.http.pagination import Page, fetch_from, scope_of
from api.http.problems import Problem
from api.http.query_parameters import At
from api.routes.read_routes import LISTED, PROBLEMS, ReadRoutes, View
from api.wire import account_answers as answers
from api.wire import charge_answers
from api.wire.account_book import AccountBook, last_charge
from api.wire.responses import shows_text
from ledger.accounts.run_epsilon import ChargeEpsilon, RunEpsilon
from ledger.book.past_snapshot import PastSnapshot
from ledger.book.state.account_proof import account_proof
from ledger.commands.entry import Entry
from ledger.commands.runs.model_ancestry import charged_body, charged_epsilon, epsilon_with_ancestry
from ledger.commands.runs.step_refund import Returned
from ledger.domain import charge_record
from ledger.domain import facts as domain
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.roles import TDC
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert, write
from policy.planning.shared_account import facts_as_shown, fetch_shared_accounts, is_rounded
from policy.planning.streams.stream_report import StreamFigures, StreamReport

T = TypeVar("T")
ROUTES: Final = ReadRoutes("accounts")
SLICES_MAX: Final = 8_192
"""Partitions of one dataset that are read."""
_LOOKED_AT_MAX: Final = 64
"""The newest slices among which the last charge is looked for."""


@ROUTES.route("/v1/partitions", LISTED, paged=True)
def list_partitions(view: View) -> Page[answers.Partition]:
    """The partitions that the caller may see."""
    now, own, read = view.time, _own_holder(view), fetch_from(view.facts.partitions)

    def fetch(after: str | None, most: int) -> list[tuple[str, domain.Partition]]:
        partitions = [*read(after, most)]
        view.facts.fetch_partitions([ref for ref, _ in partitions])
        # What everyone's account has room for is a part of a partition's state.
        if TDC in view.caller.roles:
            # Which is shown rounded, as those of its coalitions are.
            fetch_shared_accounts(view.facts, [ref for ref, _ in partitions], own)
        else:
            view.facts.fetch_accounts([ref for ref, _ in partitions], [GLOBAL, own])
        return partitions

    return view.page(
        "partitions", fetch, lambda partition: _partition(view, partition, now, own), view.caller.sees_partition
    )


@ROUTES.route("/v1/partitions/{ref:path}", as_of=True)
def read_partition(view: View, ref: PathRef) -> answers.Partition:
    """One partition. Raises: Malformed, Problem."""
    found = visible_partition(view.facts, ref, "ref", view.caller)
    return _partition(view, found, view.time, _own_holder(view))


def _partition(view: View, found: domain.Partition, now: int, own: str) -> answers.Partition:
    facts = view.facts if view.caller.watches(found) else facts_as_shown(view.facts, [found], now, own)
    return answers.Partition.of_record(found, facts, now, key_given=view.context.key_store.gives(found.provider))


def _own_holder(view: View) -> str:
    """The holder of the caller's own accounts; everyone, of a caller that has none."""
    organisation = view.facts.organisations.get(view.caller.organisation)
    return GLOBAL if organisation is None else holder_of(organisation.node)


@ROUTES.route("/v1/accounts", paged=True, as_of=True)
def read_accounts(view: View, partition: QueryRef) -> answers.AccountPage:
    """The accounts of a partition that the caller may see. Raises: Malformed, Problem."""
    found, accounts = _accounts(view, partition)
    return accounts.page(_page(view, "accounts", found, accounts.account))


@ROUTES.route(
    "/v1/accounts/{holder}/proof", slow=True, content=shows_text(*PROBLEMS, description="A proof for verifier.py")
)
def read_account_proof(view: View, holder: PathHolder, partition: QueryRef) -> Response:
    """What proves an account offline. Raises: Malformed, Problem."""
    found = visible_partition(view.facts, partition, "partition", view.caller)
    if holder == GLOBAL and not view.caller.watches(found) and is_rounded(view.facts, found, view.time):
        detail = "a proof shows an account exactly, and consumers are shown everyone's rounded: request your lineage's"
        raise Problem(Code.NOT_AUTHORISED, detail, field="holder")
    if not view.caller.sees_account(found, holder, view.facts):
        raise not_found(f"account {holder} of {partition}")
    stated = view.context.stated(view.facts.size)
    if stated is None:
        raise not_found("statement of the state yet: retry in a minute")
    proof = account_proof(
        view.facts, stated, partition, holder, lambda entry: sees_entry(view.caller, entry, view.facts)
    )
    holders = (holder, *(leaf.holder for merged in proof.merged for leaf in merged.accounts))
    if ProofReader(view.caller, view.facts, view.time, stated).can_guess(partition, holders):
        detail = "by a hash in this proof the part of others could be guessed: retry after another's entry on it"
        raise Problem(Code.NOT_AUTHORISED, detail, field="holder")
    return PlainTextResponse(write(proof), headers={"cache-control": "no-store"})


@ROUTES.route("/v1/frozen-accounts", paged=True, as_of=True)
def list_frozen_accounts(view: View, partition: QueryRef, at: At = None) -> Page[answers.FrozenAccount]:
    """The accounts over their cap; at another time for callers that see all accounts. Raises: Malformed, Problem."""
    found, accounts = _accounts(view, partition, at)
    return _page(view, "frozen-accounts", found, accounts.frozen, at)


def _accounts(view: View, ref: str, at: int | None = None) -> tuple[domain.Partition, AccountBook]:
    found = visible_partition(view.facts, ref, "partition", view.caller)
    if at is not None and not view.caller.watches(found):
        # By the caps of many times the part of others could be searched.
        raise Malformed("at", "is for who sees every account of the partition: its provider, an SRO, an auditor")
    return found, AccountBook.at(view.facts, found, view.time if at is None else at, view.caller)


def _page(
    view: View,
    name: str,
    partition: domain.Partition,
    show: Callable[[domain.Account], T | None],
    at: int | None = None,
) -> Page[T]:
    scope = scope_of(name, partition=partition.ref, as_of=view.as_of, **({} if at is None else {"at": at}))
    fetch = fetch_from(view.facts.accounts, partition=partition.ref)
    return view.page(
        scope, fetch, show, lambda account, facts: view.caller.sees_account(partition, account.holder, facts)
    )


@ROUTES.route("/v1/charges", paged=True, as_of=True)
def list_charges(
    view: View,
    partition: Annotated[str | None, Query(max_length=600, description="those on one partition")] = None,
    state: Annotated[Literal["pending", "posted", "voided"] | None, Query(description="those in one state")] = None,
) -> Page[charge_answers.Charge]:
    """The charges that the caller may see. Raises: Malformed, Problem."""
    if partition is not None:
        visible_partition(view.facts, partition, "partition", view.caller)

    def sees(found: charge_record.Charge, facts: domain.Facts) -> bool:
        wanted = partition in {None, *found.partitions} and state in {None, found.state.value}
        return wanted and view.caller.sees_charge(found, facts)

    scope = scope_of("charges", partition=partition, state=state, as_of=view.as_of)
    return view.page(scope, fetch_from(view.facts.charges), charge_answers.Charge.of_record, sees)


@ROUTES.route("/v1/charges/{id}", as_of=True)
def read_charge(view: View, id: PathName) -> charge_answers.ChargeWithProgress:  # noqa: A002 - the wire's name
    """One charge, and the steps that its clean room reported last. Raises: Malformed, Problem."""
    charge = get_visible(view.facts.charges.get(c.name(id, "id")), view.caller.sees_charge, view.facts, f"charge {id}")
    # Reports come now and then: of a settled run the newest is behind what its post says.
    shown = view.as_of is None and charge.state is ChargeState.PENDING
    progress = view.context.progress.of(charge.id) if shown else None
    returned = None if charge.post is None else _returned(view.facts, charge.post)
    return charge_answers.ChargeWithProgress.of_charge(charge, view.facts, progress, returned)


def _returned(facts: Snapshot | PastSnapshot, post: str) -> Returned | None:
    """The leased steps that came back by a post, as its entry records them."""
    index = facts.entry_index(post)
    stated = None if index is None else Entry.parse(facts.entry(index)).body.get("returned")
    return None if stated is None else convert(Returned, stated, "returned")


@ROUTES.route("/v1/charges/{id}/epsilon", slow=True)
def read_charge_epsilon(view: View, id: PathName) -> ChargeEpsilon:  # noqa: A002 - the wire's name
    """What the run of a charge reveals by its whole plan, and with all that its model descends from.

    Raises: Malformed, Problem.
    """
    caller, facts = view.caller, view.facts
    found = get_visible(facts.charges.get(c.name(id, "id")), caller.sees_charge, facts, f"charge {id}")
    return ChargeEpsilon(
        charge=found.id,
        run_epsilon=charged_epsilon(facts, found),
        with_ancestry=tuple(line for line in epsilon_with_ancestry(facts, found) if _sees(caller, found, line, facts)),
    )


def _sees(caller: Caller, charge: charge_record.Charge, line: RunEpsilon, facts: domain.Facts) -> bool:
    """Whose model it is sees every line, of every provider: it knows all runs that the model starts from."""
    own = caller.charge == charge.id or caller.organisation == charge.actor
    return own or caller.sees_partition(facts.partitions[line.partition], facts)


@ROUTES.route("/v1/streams/{provider}/{dataset}", slow=True)
def read_stream(view: View, provider: PathDid, dataset: PathName) -> StreamReport:
    """A stream with its slices, and how many runs fit in its newest window. Raises: Malformed, Problem."""
    did, name = c.did(provider, "provider"), c.name(dataset, "dataset")
    if (did, name) not in view.facts.streams or not view.caller.sees_provider(did, view.facts):
        raise not_found(f"stream {provider}/{dataset}")
    partitions = [
        partition for _, partition in fetch_from(view.facts.partitions, provider=did, dataset=name)(None, SLICES_MAX)
    ]
    report = _figures(view, did, name, partitions).report()
    assert report is not None
    return report


def _figures(view: View, provider: str, dataset: str, partitions: list[domain.Partition]) -> StreamFigures:
    """As the caller is shown them: its own lineage under its newest contract, or everyone together."""
    facts, caller = view.facts, view.caller
    watches = caller.sees_all or provider == caller.organisation or any(map(caller.watches, partitions))
    own = GLOBAL if watches else _own_holder(view)
    shown = facts if watches else facts_as_shown(facts, partitions, view.time, own)
    newest = sorted(partitions, key=lambda partition: -partition.index)[:_LOOKED_AT_MAX]
    last = next((one for each in newest if (one := last_charge(facts, each.ref, caller, all_=watches))), None)
    contract = None if last is None or own == GLOBAL else facts.contracts[last.contract]
    return StreamFigures(
        shown,
        provider,
        dataset,
        view.time,
        partitions,
        own,
        None if last is None else charged_body(facts, last),
        None if contract is None else facts.contracts[facts.contract_heads[contract.id]],
    )
