"""The job that ``epsilon train`` runs after an adapted contract was signed and entered, from a template of it.

    v = 1

    [train]
    id = "covid-run-1"
    profile = "../consumer.toml"
    attester = {issuer = "https://attester.example", key = "../keys/attester.pem"}
    data = {"did:web:icmr.example/tests/covid" = "../data/icmr.sealed", ...}
    model = "linear"
    ...

The template is a job without what the pair decides: its contract, its pipeline, its join and how many rows a person has
in it, and the training of its plan. With ``charged`` and ``columns`` the statistics and metrics of its plan are those
that the pipeline asks for (:mod:`policy.depa.charged_stages`); a plan of kind ``staged`` states its own; with neither
the run is the pipeline's training alone.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Final

from ledger.mechanisms.plan import MechanismPlan, Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.canonical_json import Json, Object
from ledger.wire.malformed import Malformed
from policy.depa.charged_stages import charged_stages
from policy.depa.contract.decimal_json import parse
from policy.depa.evaluation import RELATION
from policy.depa.import_check import Checked
from policy.depa.pipeline.pipeline import PATH
from policy.depa.pipeline.preprocessing import TREES_NEED

TEMPLATE_BYTES_MAX: Final = 65_536
WRITTEN: Final = ("contract", "join", "pipeline", "privacy", "unit_records_max")
"""What no template says, since the pair does."""


def job_file(template: bytes, checked: Checked, pipeline: str, shipped: bytes | None = None) -> bytes:
    """The job file for a pair that was imported.

    Args:
        template: TOML; its paths are relative to the folder in which the job will lie.
        pipeline: the path of the pipeline's file from there.
        shipped: the pipeline before it was adapted, for what it fits and measures.

    Raises:
        Malformed: for a template that is none, or that does not have each partition of the contract once; and for a
            pair whose run has no plan that one job trains.
    """
    table = _read(template)
    if checked.charge is None or checked.priced is None:
        raise Malformed("--job", "needs --records: without them the noise of the run is unknown")
    if len(checked.priced.plans) != 1 or not isinstance(checked.priced.plans[0], Plan):
        trees = any(isinstance(plan, MechanismPlan) for plan in checked.priced.plans)
        rule = "is for a pipeline with one training, by DP-SGD: no job runs another"
        raise Malformed("--job", f"{rule}; {TREES_NEED}" if trees else rule)
    for name in WRITTEN:
        if name in table:
            raise Malformed(f"train.{name}", "is what the contract and the pipeline decide: leave it out")
    partitions = _partitions(table.get("data"), checked)
    table = _with_stages(table, partitions, shipped)
    members: dict[str, Any] = {
        **table,
        "contract": checked.charge["contract"],
        "pipeline": pipeline,
        "plan": _plan(table.get("plan"), checked.priced.plans[0]),
        "unit_records_max": checked.charge["unit_records_max"],
        **({"join": partitions} if len(partitions) > 1 else {}),
    }
    lines = [f"{_name(name)} = {_value(value, f'train.{name}')}" for name, value in sorted(members.items())]
    return "\n".join(["v = 1", "", "[train]", *lines, ""]).encode()


def _with_stages(table: dict[str, Any], partitions: list[str], shipped: bytes | None) -> dict[str, Any]:
    """The template with the stages that its ``charged`` and ``columns`` price, in place of these. Raises: Malformed."""
    if not table.keys() & {"charged", "columns"}:
        return table
    if "plan" in table or "preprocessing" in table or shipped is None:
        raise Malformed("train.charged", "is given together with a plan or preprocessing: leave out one of the two")
    stages, preprocessing = charged_stages(table, partitions, parse(shipped, PATH))
    rest = {name: value for name, value in table.items() if name not in {"charged", "columns"}}
    return {**rest, "plan": stages, **({"preprocessing": preprocessing} if preprocessing else {})}


def _read(template: bytes) -> dict[str, Any]:
    if len(template) > TEMPLATE_BYTES_MAX:
        raise Malformed("--job", f"has more than {TEMPLATE_BYTES_MAX} bytes")
    try:
        members = tomllib.loads(template.decode("utf-8"))
    except ValueError as error:
        raise Malformed("--job", f"is not TOML: {error}") from None
    table = members.get("train")
    if members.get("v") != 1 or set(members) != {"train", "v"} or not isinstance(table, dict):
        raise Malformed("--job", "must hold v = 1 and the table [train], and nothing else")
    return table


def _partitions(data: Any, checked: Checked) -> list[str]:  # noqa: ANN401 - TOML
    """The partitions in the order of the join. Raises: Malformed, if they are not one for each key of the contract."""
    if not isinstance(data, dict) or not data:
        raise Malformed("train.data", "is missing: which file holds each partition?")
    groups = [_datasets(key) for key in checked.keys]
    for ref in data:
        owners = [group for group in groups if ref.rpartition("/")[0] in group]
        if len(owners) != 1:
            rule = "is of no data set in the contract, or of a key that another partition has"
            raise Malformed(f"train.data.{ref[:200]}", rule)
        groups.remove(owners[0])
    if groups:
        raise Malformed("train.data", f"lacks a partition of {' or '.join(groups[0])}")
    return [*data]


def _datasets(key: Object) -> list[str]:
    """The data sets of one key, as references of their partitions begin."""
    listed: Any = key["datasets"]
    return [f"{one['provider']}/{one['dataset']}" for one in listed]


def _plan(stages: Any, training: Plan) -> Json:  # noqa: ANN401 - TOML
    """The plan of the run: the training, between its stages if there are any. Raises: Malformed."""
    if stages is None:
        return training.to_json()
    if not isinstance(stages, dict) or stages.get("kind") != "staged" or "training" in stages:
        raise Malformed("train.plan", "must be of kind 'staged' without its training, which the pipeline states")
    try:
        return parse_plan({"relation": RELATION, "v": 1, **stages, "training": training.to_json()}).to_json()
    except Malformed as error:
        raise error.under("train.plan") from None


def _value(value: Any, where: str) -> str:  # noqa: ANN401 - TOML
    """A value as TOML spells it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_name(name)} = {_value(one, f'{where}.{name}')}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(_value(one, where) for one in value)}]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return json.dumps(value)
    raise Malformed(where, "must be text, a whole number, true or false, or a list or table of these")


def _name(text: str) -> str:
    """A key as TOML spells it: bare where that is possible."""
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text, re.ASCII) else _text(text)


def _text(text: str) -> str:
    # JSON's strings are TOML's but for one control character, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
