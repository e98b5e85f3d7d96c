"""The global account as one consumer sees it, and the state with it.

What others have posted and have pending is one amount, rounded up as :mod:`ledger.accounts.shared_account` does. A
policy may state ``shared_accounts: exact``. Reports to a consumer on a run before it is charged are decided on such
states only, the accounts of its coalitions included: answers on the exact sum would reveal that sum after enough
requests.

The charge of another may also be the first of a partition, and choose its rule: :func:`first_charge_warning` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from ledger.accounts.account_loss import counted_loss
from ledger.accounts.shared_account import least_of_others, others_rounded_up
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Account, Facts, Partition, holder_of
from ledger.domain.organisation_graph import coalitions_of
from ledger.domain.partition_ranges import in_words, partitions_within
from ledger.filters import NoRoom, read_rule
from ledger.mechanisms.loss import Loss
from policy.decisions.documents_in_force import Binding, binding, bindings
from policy.documents.cap_parts import WHOLE
from policy.documents.policy import ROUNDED_DECISIONS
from policy.planning.account_caps import empty_account
from policy.planning.hypothetical_facts import HypotheticalFacts

UNCERTAIN: Final = (
    "whether an account that is shared with others has room for this run is known when it is charged: their part is "
    "shown rounded up, and by that the run does not fit; a refusal costs nothing"
)
"""The report on a run that may or may not fit."""
_NAMES_MAX: Final = 500
"""Characters of names: a client takes a warning of a thousand."""


def first_charge_warning(partitions: Sequence[Partition]) -> str:
    """A sentence that names those of them whose rule the first charge chooses; empty if there is none.

    A quote reports what the quoted run would choose: the charge of another before it may choose otherwise, for good
    (:meth:`ledger.filters.Rule.for_first_run`).
    """
    refs = [one.ref for one in partitions]
    open_refs = [one.ref for one in partitions if read_rule(one.terms).first_run_chooses]
    if not open_refs:
        return ""
    names = in_words(refs, open_refs)
    if len(names) > _NAMES_MAX:
        names = f"{len(open_refs)} of its {len(refs)} partitions"
    return (
        f"this run is planned as the first charge of {names}, and the first charge chooses the division of δ: if "
        "another run is charged first, fewer such runs may fit, or none"
    )


def is_rounded(facts: Facts, partition: Partition, now: int) -> bool:
    """Whether consumers are shown the global account rounded: by default, unless the policy states ``exact``."""
    return _is_rounded(binding(facts, partition, now))


def _is_rounded(binds: Binding | None) -> bool:
    return binds is None or binds.policy.shared_accounts != "exact"


def _counts_rounded(binds: Binding | None) -> bool:
    return binds is not None and binds.policy.shared_accounts == ROUNDED_DECISIONS


def rounded_account(facts: Facts, partition: Partition, own_holder: str) -> Account:
    """The global account as shown to the holder of another account."""
    empty = empty_account(partition, GLOBAL)
    whole = facts.accounts.get((partition.ref, GLOBAL), empty)
    own = facts.accounts.get((partition.ref, own_holder), empty)
    capacity = read_rule(partition.terms).cap(partition.epsilon).capacity
    others = others_rounded_up(whole.loss, own.loss, capacity)
    return Account(partition.ref, GLOBAL, own.posted + others, own.pending)


class ShownStates(NamedTuple):
    """The states that may be shown to a consumer: with the most that others may have used, and with the least."""

    most: Facts
    least: Facts

    def map(self, change: Callable[[Facts], Facts]) -> ShownStates:
        """Both states, changed by a function."""
        return ShownStates(change(self.most), change(self.least))


def states_as_shown(facts: Facts, partitions: Sequence[Partition], now: int, own_holder: str) -> ShownStates | None:
    """The states with shared accounts as shown to a holder; None if all are shown exactly.

    A run that fits in the state with the most fits the exact one, and a run that does not fit in the state with
    the least does not. Where a policy has charges decided on the rounded part, both are the same state.
    """
    bound = bindings(facts, partitions, now)
    rounded = [partition for partition, binds in zip(partitions, bound, strict=True) if _is_rounded(binds)]
    holders: dict[str, Fraction | None] = {GLOBAL: None, **_coalitions(facts, own_holder)}
    facts.fetch_accounts([partition.ref for partition in rounded], [*holders, own_holder])
    most, least = dict[tuple[str, str], Account](), dict[tuple[str, str], Account]()
    parts = {one.ref: binds.parts if binds else WHOLE for one, binds in zip(partitions, bound, strict=True)}
    for shared in rounded:
        for holder, epsilon in holders.items():
            capacity = _capacity(shared, None if epsilon is None else parts[shared.ref].of(epsilon))
            most[shared.ref, holder], least[shared.ref, holder] = _bounds(facts, shared, holder, own_holder, capacity)
    if not most:
        return None
    # These accounts already count pending loss and decrees.
    no_forgiven = dict.fromkeys(most, None)
    least = most if any(map(_counts_rounded, bound)) else least
    return ShownStates(
        *(HypotheticalFacts(facts, accounts=accounts, forgiven=no_forgiven) for accounts in (most, least))
    )


def fetch_shared_accounts(facts: Facts, refs: Sequence[str], own_holder: str) -> None:
    """Read, in one step, the accounts that a run of this holder is charged to: everyone's, its own, its coalitions'."""
    facts.fetch_accounts(refs, [GLOBAL, *_coalitions(facts, own_holder), own_holder])


def facts_as_shown(facts: Facts, partitions: Sequence[Partition], now: int, own_holder: str) -> Facts:
    """The state with shared accounts as shown to a holder: a run that fits there fits the exact state."""
    shown = states_as_shown(facts, partitions, now, own_holder)
    return facts if shown is None else shown.most


def coalition_as_shown(facts: Facts, partition: Partition, holder: str, now: int, own_holder: str) -> Facts | None:
    """The state with a coalition's account as shown to a member; None if the member's lineage is not in it now."""
    if holder not in _coalitions(facts, own_holder):
        return None
    return facts_as_shown(facts, [partition], now, own_holder)


def charge_as_shown(
    facts: Facts, actor: str, body: MakeCharge, now: int, watches: Callable[[Partition], bool]
) -> ShownStates | None:
    """The same for a request about a charge; None also if it names unknown partitions.

    Args:
        watches: whether the caller sees the exact account of a partition.
    """
    author = facts.organisations.get(actor)
    try:
        refs = partitions_within(facts, body.partitions, body.ranges)
        shared = [partition for ref in refs if not watches(partition := facts.partitions[ref])]
    except (KeyError, Rejected):
        return None
    return None if author is None else states_as_shown(facts, shared, now, holder_of(author.node))


def _coalitions(facts: Facts, own_holder: str) -> dict[str, Fraction | None]:
    """The coalitions that a lineage is in and their ε, by holder: its members would see each other's part."""
    nodes = [node for node in _node(own_holder) if node in facts.nodes]
    coalitions = (coalition for node in nodes for coalition in coalitions_of(facts.nodes, node))
    return {holder_of(node): facts.nodes[node].epsilon for node in coalitions}


def _node(holder: str) -> list[int]:
    number = holder.rpartition(":")[2]
    return [int(number)] if number.isdecimal() and holder == holder_of(int(number)) else []


def _capacity(partition: Partition, epsilon: Fraction | None) -> Sequence[int | None]:
    """The cap of an account: the ε of its coalition, if it has one and that leaves any room."""
    rule = read_rule(partition.terms)
    try:
        return rule.cap(partition.epsilon if epsilon is None else min(epsilon, partition.epsilon)).capacity
    except NoRoom:
        return rule.cap(partition.epsilon).capacity


def _bounds(
    facts: Facts, partition: Partition, holder: str, own_holder: str, capacity: Sequence[int | None]
) -> tuple[Account, Account]:
    """An account with the most and the least that others may have of it, what counts in all; own parts are exact."""
    empty = empty_account(partition, holder)
    whole = counted_loss(facts, facts.accounts.get((partition.ref, holder), empty))
    own = facts.accounts.get((partition.ref, own_holder), empty).loss
    # After a decree less may count of the global account than of one's own.
    mine = Loss(tuple(map(min, own.finite, whole.finite)), tuple(map(min, own.infinite, whole.infinite)))
    rounded = others_rounded_up(whole, mine, capacity)
    most, least = (mine + others for others in (rounded, least_of_others(rounded, capacity)))
    nothing = empty.pending
    return Account(partition.ref, holder, most, nothing), Account(partition.ref, holder, least, nothing)
