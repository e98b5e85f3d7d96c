"""What the scenario's clean room is charged for: statistics of nine columns, DP-SGD, the area under the ROC curve."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number

RELATION: Final = "REPLACE_SPECIAL"
INPUTS: Final = {
    "icmr": ("a_test_ct_value", "a_sample_genetic_sequenced", "a_sample_genetic_strain"),
    "cowin": ("age", "vaccine_name"),
    "index": ("pasymp", "dsinfection", "potravel", "page"),
}
"""Columns of each provider's table that a model sees, in the order in which they are joined."""
PHONE: Final = {"icmr": "icmr_patient_mobilenumber", "cowin": "cowin_registered_mobile", "index": "pcnumber"}
"""The column that identifies a person: never sealed; a token replaces it."""
TARGET: Final = "a_icmr_test_result"
HELD_OUT: Final = Fraction(3, 10)
BUCKETS: Final = 4
_BOUNDS: Final = {"a_test_ct_value": ("0", "50"), "age": ("0", "100"), "page": ("0", "100"), "vaccine_name": ("1", "2")}


def staged(training: Plan, scale: Fraction, area: Fraction) -> StagedPlan:
    """Training with moments of ε ``scale`` before and a ROC curve of ε ``area`` after. Raises: Malformed."""
    names = [name for columns in INPUTS.values() for name in columns]
    bounds = [_BOUNDS.get(name, ("0", "1")) for name in names]
    columns: list[c.Json] = [
        {"column": f"inputs[{place}]", "lower": lower, "upper": upper} for place, (lower, upper) in enumerate(bounds)
    ]
    moments: c.Object = {"columns": columns, "epsilon": format_number(scale), "kind": "moments", "name": "scale"}
    curve: c.Object = {
        "buckets": BUCKETS,
        "epsilon": format_number(area),
        "kind": "roc_curve",
        "name": "roc",
        "score": "outputs[1]",
        "truth": "targets",
    }
    plan: c.Object = {
        "held_out": format_number(HELD_OUT),
        "kind": "staged",
        "metrics": [curve],
        "relation": RELATION,
        "statistics": [moments],
        "training": training.to_json(),
        "v": 1,
    }
    return StagedPlan.of(parse_plan(plan))
