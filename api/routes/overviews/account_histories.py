"""Routes that read what becomes of a budget: an account's runs with a forecast, and a run's ε at each δ."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from api.auth.visibility import get_visible, visible_partition
from api.http.field_types import PathName, QueryRef
from api.routes.read_routes import ReadRoutes, View
from api.wire.account_history import RUNS_MAX, AccountHistory, account_history
from api.wire.epsilon_curve import EpsilonCurve, epsilon_curve
from ledger.commands.runs.model_ancestry import charged_epsilon
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c

ROUTES: Final = ReadRoutes("accounts")


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
    """The ε of the run of a charge at each δ, and what is named beside it. Raises: Malformed, Problem."""
    facts = view.facts
    charge = get_visible(facts.charges.get(c.name(id, "id")), view.caller.sees_charge, facts, f"charge {id}")
    lines = charged_epsilon(facts, charge)
    # Where one has no bound, that one.
    most = max(lines, key=lambda one: (one.epsilon is None, one.epsilon or Fraction(0)))
    return epsilon_curve(facts, facts.partitions[most.partition], charge, view.caller, view.time)
