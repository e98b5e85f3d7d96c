"""Commands that name what their caller may not see: told exactly what they would be told of what never was.

The book tells a stranger that a charge is not his, which tells that there is one. So a command that names a charge, a
contract or a partition hidden from its caller ends here, with the book's own words for a thing that does not exist,
after what the book would have looked at first: the id, the form and the signature.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from api.auth.authorisation import provider_of
from api.http.problems import Problem
from ledger.domain.commands import MakeCharge
from ledger.domain.outcomes import Code
from ledger.transitions.decide import authentic
from ledger.transitions.guards import Asked, Refusal
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from api.auth.authorisation import Caller
    from ledger.book.book import Submission
    from ledger.domain.facts import Facts
    from ledger.store.snapshot import Snapshot

_NO_LAPSE: Final = ""
"""The log's key, which signs lapses alone, and those have no path here."""


def check_seen(facts: Snapshot, caller: Caller, submission: Submission) -> None:
    """Let a command pass if all that it names is missing or may be seen. Raises: Problem (404; 401 or 403 first)."""
    if caller.sees_all:
        return
    try:
        asked = Asked.read(submission.raw, submission.signature)
    except Malformed:
        return
    hidden = next(_hidden(caller, asked, facts), None)
    if hidden is None or facts.entry_index(asked.command.id) is not None:
        return
    try:
        authentic(facts, asked, _NO_LAPSE)
    except Refusal as refusal:
        told = refusal.decided
        raise Problem(told.code, told.detail, field=told.field, id=asked.command.id) from None
    what, field = hidden
    raise Problem(Code.NOT_FOUND, f"there is no {what}", field=f"body.{field}", id=asked.command.id)


def _hidden(caller: Caller, asked: Asked, facts: Facts) -> Iterator[tuple[str, str]]:
    """What it names that exists, and not for its caller, in the order in which the book looks."""
    body = asked.body
    contract = facts.contracts.get(str(getattr(body, "contract", "")))
    if contract is not None and not caller.sees_contract(contract, facts):
        yield f"contract {contract.document}", "contract"
    named = getattr(body, "charge", None)
    # What brings a nonce is told so of a charge that never was, too, before the nonce is looked at.
    early = bool(caller.charge) or hasattr(body, "nonce")
    if named is not None and (early if named not in facts.charges else _is_hidden(caller, named, facts)):
        yield f"charge {named}", "charge"
    if isinstance(body, MakeCharge):
        yield from _of_charge(caller, body, facts, contract.providers if contract is not None else ())
    elif asked.command.kind == "retirement":
        partition = facts.partitions.get(str(getattr(body, "partition", "")))
        if partition is not None and not caller.sees_partition(partition, facts):
            yield f"partition {partition.ref}", "partition"


def _is_hidden(caller: Caller, charge: str, facts: Facts) -> bool:
    return not caller.sees_charge(facts.charges[charge], facts)


def _of_charge(caller: Caller, body: MakeCharge, facts: Facts, providers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place, ref in enumerate(body.partitions):
        # Who has a contract with a provider sees its partitions: no need to look through all contracts for one.
        if provider_of(ref) in providers:
            continue
        partition = facts.partitions.get(ref)
        if partition is not None and not caller.sees_partition(partition, facts):
            yield f"partition {ref}", f"partitions[{place}]"
    for place, name in enumerate(body.base):
        charge = facts.charges.get(name)
        if charge is not None and not caller.sees_charge(charge, facts):
            yield f"charge {name}", f"base[{place}]"
