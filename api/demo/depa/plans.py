"""What the scenario's clean room is charged for: statistics of nine columns, DP-SGD, the area under the ROC curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
SELECTED: Final = {
    "a_test_ct_value": "test_ct_value",
    "a_sample_genetic_sequenced": "sample_genetic_sequenced",
    "a_sample_genetic_strain": "fk_genetic_strain",
    TARGET: "icmr_test_result",
}
"""What DEPA's pipeline calls columns of the raw files, where it calls them something else."""
HELD_OUT: Final = Fraction(3, 10)
NEGATIVES, POSITIVES = 460, 230
"""Records of each class that are held out, about: three tenths of 2,119 people, of whom three tenths are ill."""
BOUNDS: Final = {"a_test_ct_value": ("0", "50"), "age": ("0", "100"), "page": ("0", "100")}
"""What their providers declare of the columns that hold measures."""
CATEGORIES: Final = {"vaccine_name": ("1", "2")}
"""The same of columns whose numbers are names; all others are no and yes, 0 and 1."""


def bounds_of(column: str) -> tuple[str, str]:
    """The least and the greatest number of an input, as its provider declares."""
    return BOUNDS.get(column) or CATEGORIES.get(column) or ("0", "1")


def staged(training: Plan, scale: Fraction, area: Fraction, partitions: Mapping[str, str] | None = None) -> StagedPlan:
    """Training with moments of ε ``scale`` before, and the area under the ROC curve at ε ``area`` after.

    Args:
        training: the stage between them.
        scale: of nine columns, from which the inputs are standardised.
        area: of the records held out.
        partitions: by provider, which the records are joined of, where the plan says it.

    Raises:
        Malformed.
    """
    names = [name for columns in INPUTS.values() for name in columns]
    bounds = [bounds_of(name) for name in names]
    columns: list[c.Json] = [
        {"column": f"inputs[{place}]", "lower": lower, "upper": upper} for place, (lower, upper) in enumerate(bounds)
    ]
    moments: c.Object = {"columns": columns, "epsilon": format_number(scale), "kind": "moments", "name": "scale"}
    curve: c.Object = {
        "epsilon": format_number(area),
        "kind": "area_under_curve",
        "name": "roc",
        "negatives_max": NEGATIVES,
        "positives_max": POSITIVES,
        "score": "outputs[1]",
        "truth": "targets",
    }
    tables: list[c.Json] = [
        {"columns": [*INPUTS[name]], "partition": partition, "target": name == next(iter(INPUTS))}
        for name, partition in (partitions or {}).items()
    ]
    plan: c.Object = {
        "held_out": format_number(HELD_OUT),
        "kind": "staged",
        "metrics": [curve],
        "relation": RELATION,
        "statistics": [moments],
        **({"tables": tables} if tables else {}),
        "training": training.to_json(),
        "v": 1,
    }
    return StagedPlan.of(parse_plan(plan))


def charged(scale: Fraction, area: Fraction, left_out: Iterable[str]) -> c.Object:
    """The same as a job's template states it, for ``epsilon depa adapt``: the prices, and what is not measured."""
    area_terms: c.Object = {"epsilon": format_number(area), "negatives_max": NEGATIVES, "positives_max": POSITIVES}
    moments: c.Object = {"epsilon": format_number(scale)}
    return {"area_under_curve": area_terms, "left_out": [*left_out], "moments": moments}


def columns(name: str) -> c.Object:
    """What one provider declares of its columns, as a job's template states it, by the names of DEPA's pipeline."""
    target: c.Object = {SELECTED[TARGET]: "target"} if name == next(iter(INPUTS)) else {}
    inputs: c.Object = {
        SELECTED.get(column, column): {"bounds": [*bounds_of(column)], "sealed_as": column} for column in INPUTS[name]
    }
    return {**target, **inputs}
