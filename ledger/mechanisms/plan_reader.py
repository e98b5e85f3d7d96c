"""The strict reader of plans of every kind; a new kind is registered here."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.decomposition import check_pieces
from ledger.mechanisms.ensembles import EnsemblePlan
from ledger.mechanisms.plan import MechanismPlan, Plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire import canonical_json as c
from ledger.wire.field_types import register_type, rule
from ledger.wire.json_schema import json_schema
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

CACHED_PLANS_MAX: Final = 4_096
"""How many parsed plans are cached, the most recent ones."""


def parse_plan(value: Any) -> RunPlan:  # noqa: ANN401 - what is no JSON is refused
    """Read a plan of any kind; plans are cached by their bytes. Raises: Malformed."""
    try:
        canonical = c.spelled(value)
    except TypeError:
        return _read(value)
    return _read_cached(canonical)


@lru_cache(maxsize=CACHED_PLANS_MAX)
def _read_cached(canonical: bytes) -> RunPlan:
    return _read(msgspec.json.decode(canonical))


_KINDS: Final[Any] = Annotated[
    Plan | MechanismPlan | StatisticsPlan | EnsemblePlan | StagedPlan | TuningPlan | AuditedPlan | CorrelatedPlan,
    rule(
        "is no kind of plan: must be 'dp_sgd', 'mechanism', 'statistics', 'ensemble', 'staged', 'tuning', 'audited' or "
        "'correlated'"
    ),
]


def _read(value: object) -> RunPlan:
    plan: RunPlan = convert(_KINDS, value)
    if isinstance(plan, MechanismPlan):
        try:
            check_pieces(plan.whole)
        except Malformed as error:
            raise error.under("mechanism") from None
    return plan


AnyPlan: TypeAlias = RunPlan
"""The type of a record's field that holds a plan of any kind; its reader and schema are registered here."""
register_type(RunPlan, parse_plan, None, json_schema(_KINDS))
