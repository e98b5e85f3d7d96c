"""Routes that answer what-if questions: what a run would get, what a policy or a merger would change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from fastapi import Query
from msgspec import structs

from api.auth.visibility import get_visible, not_found, visible_partition
from api.http.body import PLAN_BYTES_MAX, Document, PlanQuestion, Raw
from api.http.field_types import EntityTag
from api.http.pagination import Page
from api.http.problems import Problem
from api.http.query_parameters import At
from api.routes.read_routes import ReadRoutes, View
from api.routes.submissions.if_match import tag_replaced
from api.wire import command_requests
from api.wire.responses import BINARY, takes
from client.http.endpoints import BYTES_TYPE
from ledger.book.past_snapshot import PastSnapshot
from ledger.commands.entry import Entry
from ledger.commands.registration.partition import PARTITION
from ledger.commands.runs.charge import CHARGE
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.decision import Rejected
from ledger.domain.facts import Contract, Facts, Partition, holder_of
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import partitions_within
from ledger.domain.roles import TDC
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Name, distinct
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert
from policy.checks.field_readers import DAY_MS
from policy.decisions.documents_in_force import binding, read_policy
from policy.documents.json_schemas import read_any
from policy.planning.hypothetical_facts import with_policy_throughout
from policy.planning.lineage_impact import ExposureChange, exposure_changes
from policy.planning.merger_impact import MergedAccount, merged_accounts
from policy.planning.plan_report import PlanReport, first_since, report
from policy.planning.policy_impact import Impact, impact
from policy.planning.shared_account import ShownStates, fetch_shared_accounts, states_as_shown
from policy.planning.usable_caps import CapReport, Declared, declared_load, document_caps
from policy.planning.what_if import PlannedRun, WhatIf

RATE_DAYS: Final = 30
"""How far back charges count for the present rate."""
DAYS_MAX: Final = 36_500
PENDING_MAX: Final = 10_000
ROUTES: Final = ReadRoutes("planning")
_EVER: Final = 2**62
_ERRORS: Final = (401, 403, 404, 408, 413, 415, 422)


_Search = Annotated[
    bool, Query(description="whether to look for the most steps and the least noise, of a run that would be admitted")
]
_Days = Annotated[int, Query(ge=1, le=DAYS_MAX, description="past days whose charges make the rate")]


class MergerQuestion(Record, frozen=True):
    """Organisations that might merge."""

    organisations: Annotated[tuple[Did, ...], distinct(16)]


class HandoverQuestion(Record, frozen=True):
    """A charge's model that might be handed over to a recipient or, without one, be published."""

    charge: Name
    giver: Did | None = None
    recipient: Did | None = None


class PolicyImpact(Impact, frozen=True):
    """What a policy would change; what stays the same is not listed."""

    replaces: EntityTag | None


@ROUTES.route("/v1/plans", _ERRORS, slow=True, as_of=True, takes=takes(command_requests.PlannedRun))
def plan_run(
    view: View, raw: PlanQuestion, at: At = None, days: _Days = RATE_DAYS, *, search: _Search = True
) -> PlanReport:
    """What a run would get, or would have got, now or under another policy. Raises: Malformed, Problem."""
    facts, caller, now = view.facts, view.caller, view.time if at is None else at
    body = c.members(c.parse(raw, PLAN_BYTES_MAX), "")
    policy = _policy_in(body)
    run = PlannedRun.parse({name: member for name, member in body.items() if name != "policy"}, caller.organisation)
    refs = _partitions_of(view, run)
    contract = facts.contracts.get(run.contract)
    contract = get_visible(contract, caller.sees_contract, facts, f"contract {run.contract}")
    if TDC not in caller.roles:
        # A caller who makes no charges plans for the consumer: a provider on its own partitions, and charges that it
        # sees.
        run = structs.replace(run, actor=contract.consumer)
        for ref in refs:
            if not _is_own(view, ref):
                raise not_found(f"partition {ref}")
    for name in run.base:
        get_visible(facts.charges.get(name), caller.sees_charge, facts, f"charge {name}")
    since = now - days * DAY_MS
    first, partitions = first_since(facts.size, facts.times, since), [facts.partitions[ref] for ref in refs]
    shared = [partition for partition in partitions if not caller.watches(partition)]
    _fetch_parties(facts, contract, partitions)
    author = facts.organisations.get(run.actor)
    own = holder_of(author.node) if author else ""
    fetch_shared_accounts(facts, refs, own)
    if not shared:
        return report(
            WhatIf(_under(facts, policy), run, now, exact=True, proceed=view.proceed), first, since, search=search
        )
    if policy is not None:
        _check_coalitions(facts, policy, shared, view.time)

    def shown_on(several: Sequence[Partition]) -> ShownStates | None:
        hidden = [partition for partition in several if not caller.watches(partition)]
        # Under the policies in force, whatever the policy of the question shows.
        shown = states_as_shown(facts, hidden, view.time, own)
        if shown is None:
            return None
        _check_own_entry(view)
        return shown.map(lambda state: _under(state, policy))

    return report(WhatIf(_under(facts, policy), run, now, proceed=view.proceed), first, since, shown_on, search=search)


def _fetch_parties(facts: Snapshot | PastSnapshot, contract: Contract, partitions: Sequence[Partition]) -> None:
    """Read the parties of a contract in one step, with the issuers of the policies, who declare coalitions."""
    if isinstance(facts, Snapshot):
        domains = {facts.datasets[one.provider, one.dataset].domain for one in partitions}
        issuers = {version.issuer for domain in domains for version in facts.policies.get(domain, ())}
        facts.organisations.fetch_keys([*{contract.consumer, *contract.providers, *issuers}])


def _partitions_of(view: View, run: PlannedRun) -> tuple[str, ...]:
    """The partitions of a planned run, all of which the caller sees. Raises: Problem."""
    for ref in run.partitions:
        visible_partition(view.facts, ref, "partitions", view.caller)
    try:
        refs = partitions_within(view.facts, run.partitions, run.ranges)
    except Rejected as refusal:
        decided = refusal.decided
        raise Problem(decided.code, decided.detail, field=decided.field.removeprefix("body.")) from None
    for ref in refs[len(run.partitions) :]:
        visible_partition(view.facts, ref, "ranges", view.caller)
    return refs


def _policy_in(body: c.Object) -> bytes | None:
    """The policy of a question, if it has one. Raises: Malformed."""
    policy = body.get("policy")
    if policy is not None and not isinstance(policy, str):
        raise Malformed("policy", "must be the text of a policy, in JSON or YAML")
    return policy.encode() if policy else None


def _under(facts: Facts, policy: bytes | None) -> Facts:
    """The state, as if a policy had always been the only one of its domain. Raises: Malformed."""
    if policy is None:
        return facts
    try:
        return with_policy_throughout(facts, policy)[1]
    except Malformed as error:
        raise error.under("policy") from None


def _check_coalitions(facts: Facts, policy: bytes, shared: Iterable[Partition], now: int) -> None:
    """Hold a consumer's policy to the coalitions in force: by others it would learn what their members know.

    Raises:
        Malformed.
    """
    bindings = [binding(facts, partition, now) for partition in shared]
    known = {coalition for bound in bindings if bound is not None for coalition in bound.policy.coalitions}
    try:
        named = read_policy(policy).coalitions
    except Malformed as error:
        raise error.under("policy") from None
    if not known.issuperset(named):
        raise Malformed("policy.coalitions", "must be among those in force: others would show what their members know")


def _check_own_entry(view: View) -> None:
    """Hold a plan at a past state to one of the caller's own charges: between entries of others their runs would show.

    Raises:
        Malformed: for a state that is not that of one of the caller's own charges.
    """
    if view.as_of is None:
        return
    with view.context.snapshots.read(None) as current:
        data = next(iter(current.entries(view.as_of, view.as_of + 1)), None)
    entry = None if data is None else Entry.parse(data)
    if entry is None or entry.kind != CHARGE.name or entry.actor != view.caller.organisation:
        rule = "must be the entry of a charge of yours: others share an account of this partition"
        raise Malformed("as_of", rule)


@ROUTES.route("/v1/policy-impacts", _ERRORS, slow=True, takes=takes(BINARY, BYTES_TYPE))
def ask_policy_impact(view: View, raw: Document, at: At = None) -> PolicyImpact:
    """What a policy would change. Raises: Malformed, Problem."""
    assert isinstance(view.facts, Snapshot)
    pending = view.facts.due(_EVER, PENDING_MAX + 1)
    if len(pending) > PENDING_MAX:
        detail = f"more than {PENDING_MAX} charges are pending: use 'epsilon policy impact' on the book itself"
        raise Problem(Code.CONFLICT, detail)
    # Every account may change: each table is read once, and not each row.
    view.facts.nodes.fetch()
    view.facts.forgiven.fetch_many([*view.facts.accounts.fetch()])
    view.facts.charges.fetch_keys(pending)
    contracts = [*view.facts.contract_heads.fetch().values()]
    view.facts.contracts.fetch_keys(contracts)
    view.facts.documents.fetch_keys(contracts)
    changes = impact(view.facts, raw, _moment(view, at), pending, _declared(view.facts))
    return PolicyImpact.project(changes, replaces=tag_replaced(view.facts, "policy", raw, view.caller))


def _declared(facts: Snapshot | PastSnapshot) -> Declared:
    """The plan that each partition was opened for; all openings of a whole log are read at once."""
    if isinstance(facts, PastSnapshot):
        return declared_load(facts.entry)
    return declared_load(dict(facts.newest_of([PARTITION.name], 0, facts.size)).__getitem__)


@ROUTES.route("/v1/cap-reports", _ERRORS, slow=True, takes=takes(BINARY, BYTES_TYPE))
def ask_cap_report(view: View, raw: Document) -> Page[CapReport]:
    """What could run under the caps of a policy or contract, on partitions that the caller sees. Raises: Malformed."""
    facts, caller = view.facts, view.caller
    kind, _ = read_any(raw)
    if kind not in {"contract", "policy"}:
        raise Malformed("kind", "must be 'contract' or 'policy', which have caps")
    caps = document_caps(facts, kind, raw, view.time, _declared(facts))
    seen = tuple(cap for cap in caps if caller.sees_partition(facts.partitions[cap.partition], facts))
    return Page(items=seen, next_cursor=None)


@ROUTES.route("/v1/merger-impacts", _ERRORS, slow=True, takes=takes(MergerQuestion))
def ask_merger_impact(view: View, raw: Raw, at: At = None) -> Page[MergedAccount]:
    """What a merger would change. Raises: Malformed, Problem."""
    named = convert(MergerQuestion, c.parse(raw, COMMAND_BYTES_MAX)).organisations
    assert isinstance(view.facts, Snapshot)
    organisations, nodes = view.facts.organisations, view.facts.nodes
    organisations.fetch_keys([*named])
    for did in named:
        if did not in organisations:
            raise not_found(f"organisation {did}")
    own = [organisations[did].node for did in named]
    nodes.fetch_keys(own)
    nodes.fetch_keys([*{arrow.node for one in own for arrow in (*nodes[one].parents, *nodes[one].children)}])
    changes = merged_accounts(view.facts, named, _moment(view, at))
    return Page(items=tuple(change for change in changes if _is_own(view, change.partition)), next_cursor=None)


@ROUTES.route("/v1/handover-impacts", (*_ERRORS, 409), slow=True, takes=takes(HandoverQuestion))
def ask_handover_impact(view: View, raw: Raw, at: At = None) -> Page[ExposureChange]:
    """Whose accounts a transfer or a publication would change, on the caller's own data. Raises: Malformed, Problem."""
    question = convert(HandoverQuestion, c.parse(raw, COMMAND_BYTES_MAX))
    charge = view.facts.charges.get(question.charge)
    get_visible(charge, view.caller.sees_charge, view.facts, f"charge {question.charge}")
    kind = "publication" if question.recipient is None else "transfer"
    try:
        changes = exposure_changes(view.facts, kind, question.to_json(), _moment(view, at))
    except Rejected as refusal:
        decided = refusal.decided
        raise Problem(decided.code, decided.detail, field=decided.field.removeprefix("body.")) from None
    return Page(items=tuple(change for change in changes if _is_own(view, change.partition)), next_cursor=None)


def _moment(view: View, at: int | None) -> int:
    """The time (ms) that a question is about: that of the state, unless it names one."""
    return view.time if at is None else at


def _is_own(view: View, ref: str) -> bool:
    """Whether the caller may see what others would know of a partition: its provider, and a caller that sees all."""
    return view.caller.sees_all or view.facts.partitions[ref].provider == view.caller.organisation
