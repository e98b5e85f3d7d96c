"""What a charge does to the accounts of its partitions: each before and after it, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from client.http.problems import Refused, Unreachable
from ledger.domain.facts import GLOBAL
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object

_FULLEST_MAX: Final = 3
"""Partitions of a charge over ranges whose accounts are shown."""
_SHOWN: Final = ("binding", "closed", "name", "partition", "runs_like_the_last", "share")


def shown_partitions(service: Service, body: Object) -> list[str]:
    """The partitions of a charge whose accounts are shown: those that it lists; where it names ranges, the fullest."""
    named: Any = body.get("partitions")
    listed = [ref for ref in named if isinstance(ref, str)] if isinstance(named, list) else []
    if not body.get("ranges"):
        return listed
    try:
        fullest: Any = service.plan_report(body)["lasts"]
    except (Refused, Unreachable):
        # The answer to the charge is what has to be reported.
        return []
    return [*dict.fromkeys(str(account["partition"]) for account in fullest)][:_FULLEST_MAX]


def accounts_of(service: Service, actor: str, refs: list[str]) -> dict[tuple[str, str], Any]:
    """Everyone's account and the actor's own of each of these partitions; those that cannot be read are left out."""
    fullest_by_budget: dict[tuple[str, str], Any] = {}
    for ref in refs:
        try:
            accounts: Any = service.accounts(ref)["accounts"]
        except (Malformed, Refused, Unreachable):
            continue
        own = (account for account in accounts if account["holder"] == GLOBAL or actor in account["organisations"])
        fullest_by_budget.update({(ref, account["holder"]): {**account, "partition": ref} for account in own})
    return fullest_by_budget


def changed_accounts(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[Any]:
    """What is shown of each account after a charge, with the share that was used before."""
    return [
        {**{field: account[field] for field in _SHOWN}, "share_before": before.get(key, {}).get("share", "0 %")}
        for key, account in after.items()
    ]


def account_lines(charged: Object, accounts: Sequence[Any]) -> Iterator[str]:
    """A line an account; ``charged`` is the body of the charge's answer."""
    groups: Any = charged.get("groups", [])
    if groups and accounts:
        yield f"Of its {sum(count for _, count in groups)} partitions, the fullest:"
    yield from map(_account_line, accounts)


def _account_line(account: Any) -> str:  # noqa: ANN401 - JSON
    runs = account["runs_like_the_last"]
    fits = "" if runs is None else f"; {runs} more runs like it fit"
    binds = account["closed"] or account["binding"]
    bound = f" ({binds})" if binds else ""
    used = f"{account['share_before']} used before, {account['share']} now"
    return f"{account['partition']}, account of {account['name']}: {used}{fits}{bound}"
