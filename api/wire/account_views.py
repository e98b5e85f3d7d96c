"""What stands, as JSON for people and programs: integers and strings only, names of the glossary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from api.http.json_schema import (
    BYTES_32,
    DID,
    DIGEST,
    FLAG,
    HOLDER,
    INDEX,
    NAME,
    NUMBER,
    REF,
    ROUNDED,
    STEPS,
    TIME,
    Form,
    integer,
    nullable,
    one_of,
    page,
    record,
    several,
    text,
)
from api.http.pagination import fetch_from
from api.wire.answer_schemas import TERMS
from api.wire.planning_schemas import BOUNDS, STANDING
from ledger.domain.commands import UNITS
from ledger.domain.facts import GLOBAL, Account, Charge, Contract, Facts, Partition, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import RELATIONS
from ledger.store.snapshot import Past, Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.planning.account_caps import PartitionBounds, account_status, partition_bounds

if TYPE_CHECKING:
    from api.auth.authorisation import Caller

_SHARE_UNIT: Final = 10_000
_LINEAGES_MAX: Final = 200
_RUNS_MAX: Final = 20
"""Lineages of a partition, and newest runs of each, among which the last charge is looked for."""


BUDGET: Final = record({"delta": NUMBER, "epsilon": NUMBER}, title="Budget")
PARTITION: Final = record(
    {
        "budget": BUDGET,
        "data_key": NAME,
        "data_key_from": one_of("service", "provider"),
        "dataset": NAME,
        "index": INDEX,
        "opened": TIME,
        "partition": REF,
        "provider": DID,
        "records": integer("a public lower bound on how many there are", 1),
        "relation": one_of(*RELATIONS),
        "retired": FLAG,
        "terms": TERMS,
        "unit": one_of(*UNITS),
    },
    title="Partition",
    description="a partition with its budget and its rule's terms",
)


def partition(found: Partition, *, key_given: bool) -> c.Object:
    """A partition with its budget and its rule's terms; ``key_given``: whether this service hands out its data key."""
    return {
        "budget": {"delta": format_number(found.delta), "epsilon": format_number(found.epsilon)},
        "data_key": found.data_key,
        "data_key_from": "service" if key_given else "provider",
        "dataset": found.dataset,
        "index": found.index,
        "opened": found.opened,
        "partition": found.ref,
        "provider": found.provider,
        "records": found.records,
        "relation": found.relation,
        "retired": found.retired,
        "terms": json.loads(found.terms),
        "unit": found.unit,
    }


_CHARGE: Final = {
    "actor": DID,
    "contract": DIGEST,
    "deadline": TIME,
    "id": NAME,
    "index": INDEX,
    "key_id": BYTES_32,
    "key_release": nullable(NAME),
    "partitions": several(REF),
    "plan": DIGEST,
    "sealing": BYTES_32,
    "state": one_of(*ChargeState),
    "steps": STEPS,
    "steps_posted": nullable(STEPS),
}
PROGRESS: Final = record(
    {"steps": STEPS, "time": TIME}, title="Progress", description="the newest report of the steps that are done"
)
LISTED_CHARGE: Final = record(_CHARGE, title="Charge", description="a charge as it stands")
CHARGE: Final = record(
    {**_CHARGE, "progress": nullable(PROGRESS)},
    title="ChargeWithProgress",
    description="a charge as it stands, and the newest report of its clean room",
)


def charge(found: Charge) -> c.Object:
    """A charge as it stands."""
    return {
        "actor": found.actor,
        "contract": found.contract,
        "deadline": found.deadline,
        "id": found.id,
        "index": found.index,
        "key_id": found.key_id,
        "key_release": found.key_release,
        "partitions": list(found.partitions),
        "plan": found.plan,
        "sealing": found.sealing,
        "state": found.state.value,
        "steps": found.steps,
        "steps_posted": found.steps_posted,
    }


CONTRACT: Final = record(
    {
        "consumer": DID,
        "document": DIGEST,
        "ends": TIME,
        "id": NAME,
        "index": INDEX,
        "providers": several(DID),
        "revoked": FLAG,
        "runs": integer("charged under it so far"),
        "starts": TIME,
        "version": integer(least=1),
    },
    title="Contract",
    description="a contract as it stands; what it says is in its document",
)


def contract(found: Contract) -> c.Object:
    """A contract as it stands; what it says is in its document."""
    return {
        "consumer": found.consumer,
        "document": found.document,
        "ends": found.ends,
        "id": found.id,
        "index": found.index,
        "providers": list(found.providers),
        "revoked": found.revoked,
        "runs": found.runs,
        "starts": found.starts,
        "version": found.version,
    }


_UNITS_OF_LOSS: Final = text("^(0|[1-9][0-9]*)$", "units of loss, as text")
_LOSS: Final = record({"finite": several(_UNITS_OF_LOSS), "infinite": several(integer())}, title="AccountLoss")
_ORGANISATIONS: Final[Form] = {**several(DID), "description": "who stands at the lineage now"}
ACCOUNTS: Final = page(
    record(
        {
            "holder": HOLDER,
            "odometer": nullable({**ROUNDED, "description": "the ε so far at the partition's δ, rounded up"}),
            "organisations": _ORGANISATIONS,
            "pending": _LOSS,
            "posted": _LOSS,
            "runs_like_the_last": nullable(integer("more runs like the newest charge that would fit the budget")),
            "share_of_budget": ROUNDED,
            "under_its_cap": nullable(STANDING),
        },
        title="Account",
        description="the loss of one partition seen for one holder",
    ),
    {"bounds": nullable(BOUNDS), "budget": BUDGET, "partition": REF, "retired": FLAG},
)
FROZEN: Final = page(record({**STANDING["properties"], "organisations": _ORGANISATIONS}, title="FrozenAccount"))


@dataclass(frozen=True)
class Accounts:
    """The accounts of one partition, against its budget and the caps that policies set at one time.

    ``runs_like_the_last`` is how many more runs at the full price of the newest charge would fit the budget
    if nobody else charged; null before the first charge. A tighter cap may let fewer through.
    """

    facts: Snapshot | Past
    partition: Partition
    bounds: PartitionBounds | None
    last: Charge | None

    @classmethod
    def of(cls, facts: Snapshot | Past, found: Partition, now: int) -> Accounts:
        """Under what binds at ``now`` (ms)."""
        return cls(facts, found, partition_bounds(facts, found, now), _last(facts, found.ref))

    def to_json(self) -> c.Object:
        """What all of them share."""
        found = self.partition
        return {
            "bounds": self.bounds.to_json() if self.bounds else None,
            "budget": {"delta": format_number(found.delta), "epsilon": format_number(found.epsilon)},
            "partition": found.ref,
            "retired": found.retired,
        }

    def account(self, account: Account) -> c.Object:
        """One of them, with what a person wants to know."""
        rule = read_rule(self.partition.terms)
        cap = rule.cap(self.partition.epsilon)
        runs = rule.runs(account.loss, cap, _price(self.last, self.partition.ref)) if self.last else None
        return {
            "holder": account.holder,
            "odometer": _odometer(rule, account.loss),
            "organisations": _organisations(self.facts, account.holder),
            "pending": _loss(account.pending),
            "posted": _loss(account.posted),
            "runs_like_the_last": runs,
            "share_of_budget": ceil_decimal(rule.share(account.loss, cap), 4),
            "under_its_cap": self._standing(account),
        }

    def frozen(self, account: Account) -> c.Object | None:
        """One of them, if it is over its cap."""
        told = self._standing(account)
        return {"organisations": _organisations(self.facts, account.holder), **told} if told and told["over"] else None

    def _standing(self, account: Account) -> c.Object | None:
        if self.bounds is None:
            return None
        return account_status(self.facts, account, self.bounds).to_json()


def _last(facts: Snapshot | Past, ref: str) -> Charge | None:
    """The newest charge, among the newest ones of each lineage that knows something of the partition."""
    holders = (holder for (_, holder), _ in fetch_from(facts.accounts, partition=ref)(None, _LINEAGES_MAX))
    authors = [int(holder.partition(":")[2]) for holder in holders if holder != GLOBAL]
    newest = (next((one for one in facts.latest(at, _RUNS_MAX) if ref in one.partitions), None) for at in authors)
    return max((one for one in newest if one), key=lambda one: one.index, default=None)


def _organisations(facts: Facts, holder: str) -> c.Json:
    node = None if holder == GLOBAL else facts.nodes.get(int(holder.partition(":")[2]))
    return [] if node is None else [*sorted(node.members)]


def _price(last: Charge, ref: str) -> Loss:
    return loss_of(dict(last.prices)[ref], last.steps)


def _odometer(rule: Rule, loss: Loss) -> str | None:
    try:
        return ceil_decimal(rule.odometer(loss), 4)
    except ArithmeticError:
        return None


def _loss(loss: Loss) -> c.Object:
    # As text, because a sum over many runs may pass the integers that JSON keeps exactly.
    return {"finite": [str(one) for one in loss.finite], "infinite": list(loss.infinite)}


def remaining(facts: Snapshot, refs: c.Json, caller: Caller) -> tuple[c.Object, ...]:
    """Of a refused charge: the share of capacity left on the global account and on the caller's own lineage's."""
    known = facts.organisations.get(caller.organisation)
    holders = [GLOBAL, *([holder_of(known.node)] if known else [])]
    found: list[c.Object] = []
    for ref in refs if isinstance(refs, list) else []:
        partition = facts.partitions.get(str(ref))
        if partition is None or not caller.sees_partition(partition, facts):
            continue
        for holder in holders:
            account = facts.accounts.get((partition.ref, holder))
            rule = read_rule(partition.terms)
            used = rule.share(account.loss, rule.cap(partition.epsilon)) if account else Fraction(0)
            found.append({"holder": holder, "partition": partition.ref, "share": _floor(max(1 - used, Fraction(0)))})
    return tuple(found)


def _floor(share: Fraction) -> str:
    return format_number(Fraction(int(share * _SHARE_UNIT), _SHARE_UNIT))
