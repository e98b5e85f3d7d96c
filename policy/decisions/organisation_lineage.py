"""Policy decisions on lineage events: mergers, collusion, splits, transfers, publications, coalitions.

An SRO reports what has happened, and a report is permitted. Two kinds of command can be denied: a merger that is only
proposed, and a model transfer that its holder reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from ledger.accounts.account_loss import frozen_accounts
from ledger.commands.organisation_lineage.coalition import COALITION, Declare
from ledger.commands.organisation_lineage.collusion import COLLUSION, Collude
from ledger.commands.organisation_lineage.merger import ACQUISITION, MERGER, Join
from ledger.commands.organisation_lineage.model_publication import PUBLICATION, Publish
from ledger.commands.organisation_lineage.model_transfer import TRANSFER, Transfer
from ledger.commands.organisation_lineage.split import SPLIT, Split
from ledger.domain.facts import Account, Facts
from ledger.domain.organisation_graph import NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.filters import NoRoom, read_rule
from ledger.organisation_lineage.graph_edits import preview_merge
from ledger.wire.exact_numbers import ceil_decimal
from policy.decisions.documents_in_force import binding
from policy.decisions.releases import check_transfer_allowed
from policy.decisions.request import Case, on

NAMED_MAX: Final = 16
"""How many accounts over their cap one denial names: an entry has room for 65,535 bytes."""


def merger(case: Case, body: Join) -> None:
    """Decide a merger or an acquisition: a proposed one is denied if it would freeze an account."""
    _check_reported(case, "parent_unknown", (body.organisation, *body.parents))
    if body.proposed and case.verdict().permit:
        nodes = sorted({case.facts.organisations[did].node for did in (body.organisation, *body.parents)})
        _check_fits(case, preview_merge(case.facts, nodes))


def _check_fits(case: Case, accounts: Iterable[Account]) -> None:
    described = (_describe_full(case.facts, account, case.now) for account in accounts)
    full = [check for check in described if check is not None]
    for text, holder in full[:NAMED_MAX]:
        case.failed("account_would_freeze", text, holder)
    if len(full) > NAMED_MAX:
        case.failed("account_would_freeze", f"and {len(full) - NAMED_MAX} more accounts")
    if not full:
        case.passed("account_would_freeze", "every account of the union stays within its cap")


def _describe_full(facts: Facts, account: Account, now: int) -> tuple[str, str] | None:
    """The text about an account that would be over its cap, and its holder; None if it would not be."""
    partition = facts.partitions[account.partition]
    node = facts.nodes.get(int(account.holder.partition(":")[2]))
    coalition = node if node and node.kind is NodeKind.COALITION else None
    holder = account.holder if coalition else ""
    whose = "a coalition" if coalition else "the union"
    binds = binding(facts, partition, now)
    if binds is None:
        return f"{partition.ref} is under no policy in force", holder
    own = binds.parts.of(coalition.epsilon or Fraction(0)) if coalition else binds.lineage_epsilon_max
    try:
        cap = read_rule(partition.terms).cap(min(own, partition.epsilon))
    except NoRoom as closed:
        return f"the account of {whose} on {partition.ref}: {closed}", holder
    frozen = frozen_accounts(facts, (account,), {partition.ref: cap})
    if not frozen:
        return None
    excess = frozen[0].excess
    much = "without a bound" if excess is None else f"by {ceil_decimal(100 * excess, 1)} % of it"
    return f"the account of {whose} on {partition.ref} would be over its cap {much}", holder


def collusion(case: Case, body: Collude) -> None:
    """Decide a collusion report."""
    _check_reported(case, "organisation_unknown", body.organisations)


def split(case: Case, body: Split) -> None:
    """Decide a split report."""
    _check_reported(case, "organisation_unknown", (body.organisation, body.child))


def publication(case: Case, body: Publish) -> None:
    """Decide a publication report."""
    _check_reported(case, "organisation_unknown", (body.giver,) if body.giver else ())
    case.exists("charge_unknown", case.facts.charges.get(body.charge), f"charge {body.charge}")


def coalition(case: Case, body: Declare) -> None:
    """Decide a coalition: an SRO declares it with a cap."""
    _check_reported(case, "organisation_unknown", body.members)


def transfer(case: Case, body: Transfer) -> None:
    """Decide a model transfer: any by an SRO; by a TDC only of a posted charge whose model may be released."""
    roles = _roles(case)
    case.check("actor_unknown", bool({"SRO", "TDC"} & set(roles)), case.actor, "registered as SRO or TDC")
    case.registered("recipient_unknown", (body.recipient,))
    charge = case.exists("charge_unknown", case.facts.charges.get(body.charge), f"charge {body.charge}")
    if charge is not None and "SRO" not in roles:
        case.equal("charge_not_posted", "state", charge.state.value, ChargeState.POSTED.value)
        check_transfer_allowed(case, charge)


def _roles(case: Case) -> tuple[str, ...]:
    actor = case.facts.organisations.get(case.actor)
    return actor.roles if actor else ()


def _check_reported(case: Case, code: str, named: Sequence[str]) -> None:
    """Check that an SRO reports, and that the organisations are registered."""
    case.check("actor_not_sro", "SRO" in _roles(case), case.actor, "registered as SRO")
    case.registered(code, named)


VERDICTS: Final = (
    on(MERGER, merger),
    on(ACQUISITION, merger),
    on(COLLUSION, collusion),
    on(SPLIT, split),
    on(TRANSFER, transfer),
    on(PUBLICATION, publication),
    on(COALITION, coalition),
)
"""By kind of command."""
