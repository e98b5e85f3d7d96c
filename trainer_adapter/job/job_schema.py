"""The JSON Schema (2020-12) of a job as TOML reads it: what editors and other programs check a job by.

``epsilon job schema`` prints it, docs/job.schema.json publishes it. It holds the form; that a file is there, a name
known or a plan permitted, ``epsilon job check`` says.
"""

from __future__ import annotations

from typing import Any, Final

from ledger.domain.range_names import RANGE_PATTERN
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.ensembles import QUESTIONS_MAX, EnsemblePlan
from ledger.mechanisms.mechanism import GROUP_MAX
from ledger.mechanisms.plan import BATCH_MAX, Plan
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire.json_schema import Schema, json_schema
from trainer_adapter.job.answer_terms import (
    AT_ONCE_MAX,
    CADENCE_S_MAX,
    PORT_MAX,
    REPEATED,
    TEACHER_BATCH_MAX,
    TEACHER_STEPS_MAX,
)
from trainer_adapter.job.estimator import MILLISECONDS_MAX
from trainer_adapter.job.job_fields import CHARGES_MAX, DEVICES_MAX
from trainer_adapter.job.job_spec import (
    JOIN_MAX,
    LEASE_S_MAX,
    LOSSES,
    OPTIMISERS,
    OUTPUTS_MAX,
    RECORDS_PER_UNIT_MAX,
    SGD,
    SQUARED_ERROR,
)
from trainer_adapter.job.lora_terms import LORA_ALPHA_MAX, LORA_MODULES_MAX, LORA_RANK_MAX
from trainer_adapter.job.preprocessing import (
    CATEGORY_MAX,
    COLUMN_MAX,
    CONSTANTS,
    ITEMS_MAX,
    ONE_HOT,
    PUBLIC_TEST,
    SOURCE_MAX,
    VALUES_MAX,
)
from trainer_adapter.job.privacy_target import STAGES, STEPS_MAX
from trainer_adapter.job.step_log import BLOCK_STEPS_MAX
from trainer_adapter.job.train_table import PROFILE_FIELDS
from trainer_adapter.job.tuning_terms import MEMBERS, TRIAL_S_MAX
from trainer_adapter.job.tuning_terms import VALUES_MAX as TUNING_VALUES_MAX

_TEXT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 1_000}
_PATH: Final[Schema] = {**_TEXT, "pattern": "^[^\\u0000]+$"}
_DECIMAL: Final[Schema] = {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+|/[0-9]+)?$"}
_NUMBER: Final[Schema] = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+|/[0-9]+)?$"}
_NAME: Final[Schema] = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"}
_PARTITION: Final[Schema] = {"type": "string", "pattern": "^did:[^/]+/[^/]+/[^/]+$"}
_DID: Final[Schema] = {"type": "string", "pattern": "^did:", "maxLength": 255}


def job_schema() -> Schema:
    """The schema of the whole file."""
    parts: Schema = {}
    whole = _hoist(_table({"v": {"const": 1}, "train": _train()}, required=("v", "train")), parts)
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A job of epsilon"}
    return {**named, **whole, "$defs": parts}


def _hoist(schema: Any, parts: Schema) -> Any:  # noqa: ANN401 - JSON Schema
    """A schema whose named parts, at whatever depth, are moved to ``parts``: a reference is from the root."""
    if isinstance(schema, list):
        return [_hoist(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for name, definition in schema.get("$defs", {}).items():
        parts[name] = _hoist(definition, parts)
    return {name: _hoist(member, parts) for name, member in schema.items() if name != "$defs"}


def _train() -> Schema:
    properties: dict[str, Schema] = {
        **_assignment(),
        "accuracy_target": _NUMBER,
        "answers": _answers(),
        "devices": _integer(1, DEVICES_MAX),
        "learning_rate": _NUMBER,
        "lora": _lora(),
        "loss": {"enum": [*LOSSES]},
        "model": {**_TEXT, "maxLength": 200, "pattern": "^[^\\u0000]+$"},
        "momentum": _NUMBER,
        "optimiser": {"enum": [*OPTIMISERS]},
        "outputs": _integer(1, OUTPUTS_MAX),
        "records_per_user_max": _integer(1, RECORDS_PER_UNIT_MAX),
        "schema": _PATH,
        "teachers": _table(
            {"batch_size": _integer(1, TEACHER_BATCH_MAX), "steps": _integer(1, TEACHER_STEPS_MAX)},
            required=("batch_size", "steps"),
        ),
        "test": _PATH,
        "tuning": _tuning(),
        "weight_decay": _NUMBER,
    }
    required = ("attester", "block_steps", "contract", "data", "deadline_s", "id", "output")
    sgd = {"properties": {"optimiser": {"const": SGD}}}
    squared = {"properties": {"loss": {"const": SQUARED_ERROR}}, "required": ["loss"]}
    return {
        **_table(properties, required=required),
        "allOf": [
            {"oneOf": [{"required": ["plan"]}, {"required": ["privacy"]}]},
            _either(["profile"], [*PROFILE_FIELDS]),
            {
                "if": {"required": ["model"]},
                "then": {
                    "required": ["learning_rate", "test"],
                    "if": sgd,
                    "then": {"required": ["momentum"]},
                    "else": {"not": {"required": ["momentum"]}},
                },
            },
            {"if": squared, "then": {"not": {"required": ["accuracy_target"]}}},
        ],
    }


def _tuning() -> Schema:
    kinds = {"batch_size_expected": _integer(1, BATCH_MAX), "model": {**_TEXT, "maxLength": 200}}
    space: dict[str, Schema] = {
        name: {
            "type": "array",
            "items": kinds.get(name, _NUMBER),
            "minItems": 1,
            "maxItems": TUNING_VALUES_MAX,
            "uniqueItems": True,
        }
        for name in MEMBERS
    }
    fields = {"space": {**_table(space, required=()), "minProperties": 1}, "trial_s": _integer(1, TRIAL_S_MAX)}
    return _table(fields, required=("space", "trial_s"))


def _either(first: list[str], others: list[str]) -> Schema:
    """The one field, or all the others, and never both."""
    none = {"not": {"anyOf": [{"required": [name]} for name in others]}}
    return {"oneOf": [{"required": first, **none}, {"required": others, "not": {"required": first}}]}


def _assignment() -> dict[str, Schema]:
    resume = {"key": _PATH, "every_s": _integer(0, 86_400)}
    return {
        "actor": _DID,
        "attester": _table({"issuer": {**_TEXT, "maxLength": 200}, "key": _PATH}, required=("issuer", "key")),
        "base": _several(_NAME),
        "block_steps": _integer(1, BLOCK_STEPS_MAX),
        "lease_s": _integer(0, LEASE_S_MAX),
        "step_leases": {"type": "boolean"},
        "watermark": {"type": "boolean"},
        "contract": _PATH,
        "data": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": rf"^(?:did:[^/]+/[^/]+/[^/\[\]]+|{RANGE_PATTERN})$"},
            "additionalProperties": _PATH,
        },
        "deadline_s": _integer(60, 30 * 86_400),
        "estimator": _table(
            {"function": {**_TEXT, "maxLength": 200}, "milliseconds": _integer(1, MILLISECONDS_MAX)},
            required=("function", "milliseconds"),
        ),
        "grants": _PATH,
        "id": _NAME,
        "issuer": _TEXT,
        "key": _PATH,
        "join": {**_several(_PARTITION), "maxItems": JOIN_MAX},
        "log": _TEXT,
        "output": _PATH,
        "pipeline": _PATH,
        "plan": json_schema(
            Plan | StatisticsPlan | EnsemblePlan | StagedPlan | TuningPlan | AuditedPlan | CorrelatedPlan
        ),
        "preprocessing": {"type": "array", "maxItems": ITEMS_MAX, "items": {"oneOf": [*_constants()]}},
        "privacy": _privacy(),
        "profile": _PATH,
        "recipients": {"oneOf": [{"const": "everyone"}, _several(_DID)]},
        "resume": _table(resume, required=("key", "every_s")),
        "service": _TEXT,
        "unit_records_max": _integer(1, GROUP_MAX),
    }


def _privacy() -> Schema:
    parts = json_schema(StagedPlan)["$defs"]
    staged: Schema = parts["StagedPlan"]["properties"]
    fields: dict[str, Schema] = {
        **{name: staged[name] for name in STAGES},
        "batch_size_expected": _integer(1, BATCH_MAX),
        "clipping_norm": _NUMBER,
        "epsilon": _NUMBER,
        "steps": _integer(1, STEPS_MAX),
        "unit": {"enum": ["record", "user"]},
    }
    return {**_table(fields, required=("batch_size_expected", "epsilon", "steps")), "$defs": parts}


def _answers() -> Schema:
    fields: dict[str, Schema] = {
        "at_once": _integer(1, AT_ONCE_MAX),
        "cadence_s": _integer(1, CADENCE_S_MAX),
        "most": _integer(1, QUESTIONS_MAX),
        "port": _integer(0, PORT_MAX),
        "repeated": {"enum": [*REPEATED]},
    }
    return _table(fields, required=())


def _lora() -> Schema:
    modules = {"type": "array", "minItems": 1, "maxItems": LORA_MODULES_MAX, "uniqueItems": True, "items": _TEXT}
    return _table(
        {"alpha": _integer(1, LORA_ALPHA_MAX), "modules": modules, "rank": _integer(1, LORA_RANK_MAX)},
        required=("rank",),
    )


def _constants() -> list[Schema]:
    """Each kind with published constants; each with a charged model; the run's own; and those of the test set."""
    one: Schema = {"oneOf": [{"type": "integer"}, _DECIMAL]}
    many = {"oneOf": [one, {"type": "array", "minItems": 1, "maxItems": VALUES_MAX, "items": one}]}
    branches = []
    for kind, names in CONSTANTS.items():
        public = {"type": "string", "minLength": 1, "maxLength": SOURCE_MAX}
        published = {"kind": {"const": kind}, "public": public, **dict.fromkeys(names, many)}
        charged = {"kind": {"const": kind}, "charge": _NAME, "model": _PATH}
        branches += [_table(fields, required=tuple(fields)) for fields in (published, charged)]
        branches[-1]["properties"]["statistic"] = _NAME
    own = {"kind": {"const": "normalise"}, "statistic": _NAME}
    tested = {"kind": {"const": "normalise"}, "public": {"const": PUBLIC_TEST}}
    return [*branches, *(_table(fields, required=tuple(fields)) for fields in (own, tested, *_categories()))]


def _categories() -> list[dict[str, Schema]]:
    """Of ``one_hot``: declared categories, and the run's own private ones."""
    taken: dict[str, Schema] = {"column": _integer(0, COLUMN_MAX), "kind": {"const": ONE_HOT}}
    category = _integer(-CATEGORY_MAX, CATEGORY_MAX)
    values = {"type": "array", "minItems": 1, "maxItems": VALUES_MAX, "uniqueItems": True, "items": category}
    public = {"type": "string", "minLength": 1, "maxLength": SOURCE_MAX}
    return [{**taken, "public": public, "values": values}, {**taken, "statistic": _NAME}]


def _several(item: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": CHARGES_MAX, "uniqueItems": True, "items": item}


def _integer(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _table(properties: dict[str, Any], *, required: tuple[str, ...]) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict(sorted(properties.items())),
        "required": sorted(required),
    }
