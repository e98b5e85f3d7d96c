"""What is told to people who must decide, for the OpenAPI document, as ``policy`` writes it (each form names where)."""

from __future__ import annotations

from typing import Final

from api.http.json_schema import (
    DID,
    ETAG,
    FLAG,
    FREE,
    HOLDER,
    NAME,
    NODE,
    PERCENT,
    REF,
    STAMP,
    STEPS,
    TOLD,
    Form,
    integer,
    nullable,
    page,
    record,
    several,
    text,
)
from api.wire.answer_schemas import CHECK
from ledger.domain.outcomes import Code

_SHARE: Final = nullable({**TOLD, "description": "the quota of a lineage, of the partition's capacity"})
_RUN: Final = {
    "delta_max": nullable(TOLD),
    "mechanisms": nullable(several(FREE)),
    "noise_multiplier_min": nullable(TOLD),
    "probability_max": nullable(TOLD),
    "steps_max": nullable(STEPS),
}
"""As :meth:`policy.documents.RunBounds.to_json` writes it; null where nothing is said."""
BOUNDS: Final = record(
    {
        "closes": nullable(STAMP),
        "epsilon_max": nullable(TOLD),
        "level": integer("of sensitivity", 0, 2),
        "lineage_epsilon_max": TOLD,
        "pipeline": {**FLAG, "description": "whether a charge must name its pipeline"},
        "run": record(_RUN, title="RunBounds", description="what one run may be at most, beyond its ε"),
        "run_epsilon_max": TOLD,
        "share_max": _SHARE,
        "source": FREE,
    },
    title="Bounds",
    description="what the policy in force says of a partition; epsilon_max is null where everyone is only watched",
)
"""As :meth:`policy.planning.account_caps.PartitionBounds.to_json` writes it."""
_ANY_HOLDER: Final = text(
    "^(global|lineage:(0|[1-9][0-9]{0,18}))$",
    "everyone, or one lineage by its node; a lineage that is only asked about has one that is no entry's",
)
STANDING: Final = record(
    {
        "epsilon_max": nullable(TOLD),
        "holder": _ANY_HOLDER,
        "over": FLAG,
        "partition": REF,
        "share_max": _SHARE,
        "used": PERCENT,
    },
    title="Standing",
    description="one account under its cap and quota, pending counted in full; over them it is frozen",
)
"""As :meth:`policy.planning.account_caps.AccountStatus.to_json` writes it."""
_DECISION: Final = record(
    {
        "binding": nullable(CHECK),
        "checks": several(CHECK),
        "detail": FREE,
        "outcome": {"type": "string", "enum": [code.word for code in Code]},
    },
    title="PlannedDecision",
    description="what the run would get now; binding is what decides, or the account that is fullest afterwards",
)
"""As :meth:`policy.planning.what_if.DecisionReport.to_json` writes it."""
_ADVICE: Final = record(
    {
        "blocked": several(CHECK),
        "noise_multiplier": nullable(TOLD),
        "partitions": several(record({"instead": REF, "of": REF})),
        "partitions_untried": integer(),
        "steps": nullable(STEPS),
    },
    title="Advice",
    description="what would pass instead: fewer steps, more noise, or other partitions of the same datasets",
)
"""As :meth:`policy.planning.counterfactuals.Advice.to_json` writes it."""
_PROJECTION: Final = record(
    {
        "full": FLAG,
        "holder": HOLDER,
        "partition": REF,
        "projected_until": nullable(STAMP),
        "rate_since": STAMP,
    },
    title="Projection",
    description="until when an account has room, charged on as it was lately",
)
"""As :meth:`policy.planning.burn_rate.Projection.to_json` writes it."""
_ROOM: Final = record({"holder": HOLDER, "partition": REF, "runs": integer(), "used": PERCENT}, title="RunsThatFit")
PLANNED: Final = record(
    {
        "advice": nullable(_ADVICE),
        "blocked": several(CHECK),
        "decision": _DECISION,
        "lasts": several(_PROJECTION),
        "noise_multiplier_least": nullable(TOLD),
        "runs": record(
            {"accounts": several(_ROOM), "binding": nullable(CHECK), "more": integer(), "or_more": FLAG},
            title="MoreRuns",
            description="how many more such runs fit, one after another",
        ),
        "steps_most": record({"epochs": nullable(TOLD), "steps": STEPS}, title="StepsThatFit"),
    },
    title="PlanReport",
)
"""As :func:`policy.planning.plan_report.report` writes it."""


def _change(title: str, name: Form, value: Form) -> Form:
    return record({"after": value, "before": value, "name": name}, title=title)


_CAPS: Final = record(
    {
        **_RUN,
        "lineage_epsilon_max": nullable(TOLD),
        "pipeline": FLAG,
        "run_epsilon_max": nullable(TOLD),
        "share_max": _SHARE,
    },
    title="ContractBounds",
    description="what binds runs under a contract, of all that say something the strictest",
)
_FIELD: Final[Form] = {
    "description": "as people read it",
    "anyOf": [{"type": ["string", "integer", "boolean", "null"]}, several(FREE)],
}
IMPACT: Final = record(
    {
        "accounts": several(
            record({"after": STANDING, "before": STANDING, "freezes": FLAG, "thaws": FLAG}, title="AccountChange")
        ),
        "at": STAMP,
        "contracts": several(_change("ContractChange", NAME, _CAPS)),
        "datasets": several(record({"dataset": NAME, "provider": DID})),
        "fields": several(_change("PolicyFieldChange", FREE, _FIELD)),
        "partitions": several(_change("PartitionChange", REF, nullable(BOUNDS))),
        "pending": several(
            record({"attestation": FLAG, "charge": NAME, "frozen": FLAG, "sealed": FLAG}, title="PendingChange")
        ),
        "policy": FREE,
        "refused": several(CHECK),
        "undeclared": several({**FREE, "description": "a named coalition that nobody declared, and its members"}),
        "replaces": nullable(ETAG),
    },
    title="PolicyImpact",
    description="what a policy would change; what stays the same is not listed",
)
"""As :meth:`policy.planning.policy_impact.Impact.to_json` writes it, and the tag of what it was told against."""
JOINED: Final = page(
    record(
        {
            "after": STANDING,
            "before": several(STANDING),
            "coalition": nullable(NODE),
            "excess": nullable(PERCENT),
            "partition": REF,
        },
        title="JoinedAccount",
        description="one account that a merger would change; coalition is the node of a declared one",
    )
)
"""As :meth:`policy.planning.merger_impact.MergedAccount.to_json` writes it."""
SMALLEST: Final = record(
    {
        "asked": integer("organisations that were asked about"),
        "coalitions": several(record({"members": several(DID), "used": PERCENT})),
        "complete": FLAG,
        "epsilon_max": TOLD,
        "partition": REF,
        "searched_up_to": integer("members"),
    },
    title="SmallestCoalitions",
)
"""As :meth:`policy.planning.coalition_search.Coalitions.to_json` writes it."""
