"""What stands, as JSON for people and programs: integers and strings only, names of the glossary."""

from __future__ import annotations

import json

from api.access import Caller
from ledger import canonical as c
from ledger.loss import Loss, loss_of
from ledger.registry import Account, Charge, Contract, Facts, Partition, holder_of
from ledger.rules import Rule, read_rule
from ledger.units import ceil_decimal, format_number


def partition(found: Partition) -> c.Object:
    """A partition with its budget and its rule's terms."""
    return {
        "budget": {"delta": format_number(found.delta), "epsilon": format_number(found.epsilon)},
        "data_key": found.data_key,
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


def contract(found: Contract) -> c.Object:
    """A contract as it stands; what it says is in its document."""
    return {
        "consumer": found.consumer,
        "document": found.document,
        "ends": found.ends,
        "id": found.id,
        "index": found.index,
        "providers": list(found.providers),
        "runs": found.runs,
        "starts": found.starts,
        "version": found.version,
    }


def accounts(facts: Facts, found: Partition, caller: Caller) -> c.Object:
    """The accounts of a partition that the caller may see, against its budget, with what a person wants to know.

    ``runs_like_the_last`` is how many more runs at the full price of the newest charge would fit the budget
    if nobody else charged; null before the first charge. A tighter cap may let fewer through.
    """
    last = max((one for one in facts.charges.values() if found.ref in one.partitions), key=_index, default=None)
    mine = [
        account
        for (ref, holder), account in facts.accounts.items()
        if ref == found.ref and caller.sees_account(found, holder, facts)
    ]
    return {
        "accounts": [_account(facts, found, account, last) for account in sorted(mine, key=_holder)],
        "budget": {"delta": format_number(found.delta), "epsilon": format_number(found.epsilon)},
        "partition": found.ref,
        "retired": found.retired,
    }


def _account(facts: Facts, found: Partition, account: Account, last: Charge | None) -> c.Object:
    rule = read_rule(found.terms)
    cap = rule.cap(found.epsilon)
    runs = rule.runs(account.loss, cap, _price(last, found.ref)) if last else None
    return {
        "holder": account.holder,
        "odometer": _odometer(rule, account.loss),
        "organisations": _organisations(facts, account.holder),
        "pending": _loss(account.pending),
        "posted": _loss(account.posted),
        "runs_like_the_last": runs,
        "share_of_budget": ceil_decimal(rule.share(account.loss, cap), 4),
    }


def _organisations(facts: Facts, holder: str) -> c.Json:
    named = [one.did for one in facts.organisations.values() if holder_of(one.node) == holder]
    return [*sorted(named)]


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


def _index(one: Charge) -> int:
    return one.index


def _holder(one: Account) -> str:
    return one.holder
