"""Routes that read what becomes of a budget: an account's runs with a forecast, and a run's ε at each δ."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from api.auth.visibility import get_visible, visible_partition
from api.http.field_types import Number, PathName, QueryRef, Ref
from api.routes.read_routes import ReadRoutes, View
from api.wire.account_history import RUNS_MAX, AccountHistory, account_history
from ledger.accounts.pricing import COMPUTED
from ledger.book.past_snapshot import PastSnapshot
from ledger.commands.runs.model_ancestry import charged_body, charged_epsilon
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Rejected
from ledger.domain.facts import Partition
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

ROUTES: Final = ReadRoutes("accounts")
DELTAS: Final = tuple(Fraction(1, 10**place) for place in range(3, 9))
"""Each δ of a curve."""


class CurvePoint(Record, frozen=True):
    """The ε of a run at one δ."""

    delta: Number
    epsilon: Annotated[Number | None, Meta(description="of the whole plan, rounded up; null where none is proven")]


class EpsilonCurve(Record, frozen=True):
    """The ε of one run at each δ, on the partition where it reveals most."""

    charge: Name
    partition: Ref
    points: tuple[CurvePoint, ...]


@ROUTES.route("/v1/account-history", slow=True)
def read_account_history(view: View, partition: QueryRef) -> AccountHistory:
    """The newest runs of the account of a partition that the caller may see, with a forecast.

    Raises: Malformed, Problem.
    """
    found = visible_partition(view.facts, partition, "partition", view.caller)
    assert isinstance(view.facts, Snapshot)
    return account_history(view.facts, found, view.time, view.caller, view.facts.newest_on(found.ref, RUNS_MAX))


@ROUTES.route("/v1/charges/{id}/curve", slow=True)
def read_epsilon_curve(view: View, id: PathName) -> EpsilonCurve:  # noqa: A002 - the wire's name
    """The ε of the run of a charge at each δ. Raises: Malformed, Problem."""
    facts = view.facts
    charge = get_visible(facts.charges.get(c.name(id, "id")), view.caller.sees_charge, facts, f"charge {id}")
    lines = charged_epsilon(facts, charge)
    # Where one has no bound, that one.
    most = max(lines, key=lambda one: (one.epsilon is None, one.epsilon or Fraction(0)))
    found = facts.partitions[most.partition]
    points = tuple(CurvePoint(delta=one, epsilon=_epsilon(facts, charge, found, one)) for one in DELTAS)
    return EpsilonCurve(charge=charge.id, partition=found.ref, points=points)


def _epsilon(facts: Snapshot | PastSnapshot, charge: Charge, found: Partition, delta: Fraction) -> Fraction | None:
    """The ε of the whole plan at another δ than the partition's; None where none is proven."""
    try:
        return COMPUTED.epsilon(replace(found, delta=delta), charged_body(facts, charge))
    except (Rejected, Malformed, ArithmeticError):
        return None
