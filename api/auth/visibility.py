"""What a caller may not see does not exist for it: the same answer for a hidden thing and for a missing one.

The book would answer a stranger that a charge is another's, which reveals that it exists. So a command that names a
charge, a contract or a partition hidden from its caller ends here, with the book's own words for a missing thing, after
the checks that the book makes first: the id, the form and the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from api.auth.authorisation import Caller, provider_of, sees_entry
from api.http.problems import Problem
from ledger.book.book import Submission
from ledger.book.past_snapshot import PastSnapshot
from ledger.book.submitted_command import Views
from ledger.commands.context import PendingCommand
from ledger.commands.decide import verify_signer
from ledger.commands.entry import Entry
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.command import parse_ref
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts, Partition
from ledger.domain.outcomes import Code
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.planning.shared_account import charge_as_shown

T = TypeVar("T")
_NO_LAPSE: Final = ""
"""No log key: it signs the book's own entries alone, and no client sends those."""


def get_visible(value: T | None, sees: Callable[[T, Facts], bool], facts: Facts, what: str) -> T:
    """The thing, if the caller may see it. Raises: Problem."""
    if value is None or not sees(value, facts):
        raise not_found(what)
    return value


def not_found(what: str) -> Problem:
    """There is no such thing."""
    return Problem(Code.NOT_FOUND, f"there is no {what}")


def views_of(caller: Caller) -> Views:
    """What a quote of a charge may show the caller of a state: what others have used, rounded."""

    def views(facts: Snapshot, pending: PendingCommand, now: int) -> Sequence[Facts]:
        body = pending.body
        if not isinstance(body, MakeCharge):
            return ()
        return charge_as_shown(facts, pending.command.actor, body, now, caller.watches) or ()

    return views


def visible_partition(facts: Facts, ref: str, field: str, caller: Caller) -> Partition:
    """A partition by its reference. Raises: Malformed, Problem."""
    partition = facts.partitions.get(parse_ref(ref, field))
    return get_visible(partition, caller.sees_partition, facts, f"partition {ref}")


def visible_entry(facts: Snapshot | PastSnapshot, name: str, caller: Caller) -> tuple[int, Entry]:
    """The entry of a command by the command's id. Raises: Malformed, Problem."""
    index = facts.entry_index(c.name(name, "id"))
    entry = None if index is None else Entry.parse(facts.entry(index))
    if index is None or entry is None or not sees_entry(caller, entry, facts):
        raise Problem(Code.NOT_FOUND, f"no entry has the id {name}", field="id", id=name)
    return index, entry


def require_visible(facts: Snapshot, caller: Caller, submission: Submission) -> None:
    """Let a command pass if all that it names is missing or may be seen. Raises: Problem (404; 401 or 403 first)."""
    if caller.sees_all:
        return
    try:
        pending = submission.pending
    except Malformed:
        return
    hidden = next(_hidden(caller, pending, facts), None)
    if hidden is None or facts.entry_index(pending.command.id) is not None:
        return
    try:
        verify_signer(facts, pending, _NO_LAPSE)
    except Rejected as refusal:
        rejection = refusal.decided
        raise Problem(rejection.code, rejection.detail, field=rejection.field, id=pending.command.id) from None
    what, field = hidden
    raise Problem(Code.NOT_FOUND, f"there is no {what}", field=f"body.{field}", id=pending.command.id)


def _hidden(caller: Caller, pending: PendingCommand, facts: Facts) -> Iterator[tuple[str, str]]:
    """What it names that exists, and not for its caller, in the order in which the book looks."""
    body = pending.body
    contract = facts.contracts.get(str(getattr(body, "contract", "")))
    if contract is not None and not caller.sees_contract(contract, facts):
        yield f"contract {contract.document}", "contract"
    named = getattr(body, "charge", None)
    # A command with a nonce learns of a charge that never was, too, before the nonce is checked.
    early = bool(caller.charge) or getattr(body, "nonce", None) is not None
    if named is not None and (
        early if named not in facts.charges else not caller.sees_charge(facts.charges[named], facts)
    ):
        yield f"charge {named}", "charge"
    if isinstance(body, MakeCharge):
        shows = contract is not None and caller.consumes(contract, facts)
        yield from _of_charge(caller, body, facts, contract.providers if contract is not None and shows else ())
    elif pending.command.kind == "retirement":
        partition = facts.partitions.get(str(getattr(body, "partition", "")))
        if partition is not None and not caller.sees_partition(partition, facts):
            yield f"partition {partition.ref}", "partition"


def _of_charge(caller: Caller, body: MakeCharge, facts: Facts, providers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place, ref in enumerate(body.partitions):
        # The consumer of a contract sees its providers' partitions: no need to look through all contracts for one.
        if provider_of(ref) in providers:
            continue
        partition = facts.partitions.get(ref)
        if partition is not None and not caller.sees_partition(partition, facts):
            yield f"partition {ref}", f"partitions[{place}]"
    for place, named in enumerate(body.ranges):
        if provider_of(named.dataset) in providers:
            continue
        # Each by itself: a caller that sees neither end learns of no partition between them.
        for ref in facts.opening_order(named.dataset).refs:
            if not caller.sees_partition(facts.partitions[ref], facts):
                yield f"partition {named.dataset}/{named.first}", f"ranges[{place}].first"
                break
    for place, name in enumerate(body.base):
        charge = facts.charges.get(name)
        if charge is not None and not caller.sees_charge(charge, facts):
            yield f"charge {name}", f"base[{place}]"
