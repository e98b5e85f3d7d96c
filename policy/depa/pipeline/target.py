"""What a training stage predicts. Where a contract bounds it, that is one column, named in one place.

    "dataset_config": {"type": "tabular", "target_variable": "icmr_a_icmr_test_result", ...}

DEPA's trainer takes the target of a table from ``target_variable`` alone, and of other kinds of data from keys, files
or folders, which no contract's bound names: so such a bound holds only where nothing else names a target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policy.depa.contract.contract import Contract
from policy.depa.contract.decimal_json import content_of
from policy.depa.contract.field_reader import Fields
from policy.depa.contract.reasons import Reasons, under

_NAME: Final = "target_variable"
_TABLE: Final = "tabular"


@dataclass(frozen=True, slots=True)
class Target:
    """What one stage predicts, as it says it.

    Attributes:
        path: the place where a table's target is named.
        value: what stands there, of any type; None if nothing does.
        beside: every other place that names a target or its kind, with what stands there.
    """

    path: str
    value: object
    beside: tuple[tuple[str, object], ...]


def read_target(fields: Fields) -> Target:
    """The target of a training stage's config; nothing is reported, since only a contract bounds it."""
    config = fields.value.get("dataset_config")
    if not isinstance(config, dict):  # before 2025 the config was flat
        return Target(fields.at(_NAME), fields.value.get(_NAME), ())
    path = fields.at("dataset_config")
    beside = [(fields.at(_NAME), fields.value.get(_NAME))]
    beside += [(under(path, name), config.get(name)) for name in ("pairing", "targets_key", "type")]
    # A table's own type names no target.
    held = (each for each in beside if content_of(each[1], "") and each != (under(path, "type"), _TABLE))
    return Target(under(path, _NAME), config.get(_NAME), tuple(held))


def check_targets(
    targets: tuple[Target, ...], renamed: Iterator[tuple[str, str]], contract: Contract, reasons: Reasons
) -> None:
    """Hold each target to every bound of the contract; without a bound any may be predicted.

    Args:
        targets: of the training stages.
        renamed: each name that a join's query gives to a column of another name, in capitals, with the query's path.
    """
    bounds = [bound.targets for bound in contract.bounds if bound.targets is not None]
    if not bounds:
        return
    permitted = [name for name in bounds[0] if all(name in names for names in bounds)]
    rule = f"permitted are {', '.join(permitted)}" if permitted else "the contract permits none"
    for target in targets:
        if not isinstance(target.value, str) or target.value not in permitted:
            reasons.refuse("target_not_permitted", target.path, target.value, rule)
        for path, value in target.beside:
            reasons.refuse(
                "target_not_permitted", path, value, f"target_variable of a table alone may name one; {rule}"
            )
    for path, name in renamed:
        if name in {one.upper() for one in permitted}:
            reasons.refuse("target_not_permitted", path, name, f"a column of another name gets it; {rule}")
