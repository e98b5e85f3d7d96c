"""An SRO's policy for a domain: Level, caps, permitted mechanisms, attestation, release.

{"kind":"policy","v":1,"id":"health-images","version":1,"issuer":"did:web:sro.example","domain":"health",...}
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self

from msgspec import structs

from ledger.commands.registration.partition import UNITS
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.mechanisms.decomposition import kinds_of
from ledger.mechanisms.mechanism import RELATIONS
from ledger.mechanisms.plan import RunPlan
from ledger.mechanisms.price_proofs import RULE_NAMES
from policy.checks import field_readers as r
from policy.documents import field_shapes as s
from policy.documents.document_text import read_document
from policy.documents.run_bounds import MECHANISMS, POLICY_RUN, TUNING, UNBOUNDED, RunBounds, bounds_of, strictest
from policy.documents.trusted_attesters import ATTESTATION, Attestation

LEVEL_SEALED: Final = 2
DATASETS_MAX: Final = 64
MEMBERS_MAX: Final = 64
COALITIONS_MAX: Final = 32
ALERTS_MAX: Final = 16
AGE_DAYS_MAX: Final = 36_500
NOTICE_HOURS_MAX: Final = 8_760
RECORDS_MAX: Final = 10**12
PRIVATE_PREDICTION: Final = "private_prediction"

_LEVEL: Final = s.integer(0, LEVEL_SEALED)
_CAP: Final = s.record({"epsilon_max": s.EPSILON}, {"delta_max": s.DELTA}).shape
SHAPE: Final = s.document(
    "policy",
    {
        "attestation": ATTESTATION,
        "budget": s.record({"delta_max": s.DELTA, "epsilon_max": s.EPSILON}).shape,
        "domain": s.NAME,
        "effective": s.TIME,
        "id": s.NAME,
        "issuer": s.DID,
        "level": _LEVEL,
        "lineage": _CAP,
        "mechanisms": s.words(*MECHANISMS),
        "model_release": s.FLAG,
        "records_min": s.integer(1, RECORDS_MAX),
        "relation": s.word(*RELATIONS),
        "rules": s.words(*RULE_NAMES),
        "run": POLICY_RUN,
        "unit": s.word(*UNITS),
        "version": s.VERSION,
    },
    {
        "alerts": s.listed(s.SHARE, ALERTS_MAX, "shares of capacity"),
        "coalitions": s.listed(
            s.record(
                {"epsilon_max": s.EPSILON, "members": s.listed(s.DID, MEMBERS_MAX, "members", 2), "name": s.NAME}
            ).shape,
            COALITIONS_MAX,
            "coalitions",
        ),
        "commitments": s.FLAG,
        "levels": s.listed(
            s.record({"dataset": s.NAME, "level": _LEVEL, "provider": s.DID}).shape, DATASETS_MAX, "datasets"
        ),
        "load": s.PLAN,
        "notice_hours": s.integer(0, NOTICE_HOURS_MAX),
        "partition_age_days_max": s.integer(1, AGE_DAYS_MAX),
        "pipeline": s.FLAG,
        "quota": s.record({"share_max": s.SHARE}).shape,
        "sealed": s.record(
            {"everyone": s.word("caps", "watched"), "inference": s.word("attested", PRIVATE_PREDICTION)}
        ).shape,
        "tuning": s.word("charged", "public"),
        "watermark": s.FLAG,
    },
)


@dataclass(frozen=True, slots=True)
class Coalition:
    """Organisations that together stay under a cap of ε at each partition's δ."""

    name: str
    members: tuple[str, ...]
    epsilon_max: Fraction


@dataclass(frozen=True, slots=True)
class Policy:
    """An SRO's policy for a domain, from ``effective`` (ms) until a later version is.

    Attributes:
        epsilon_max: the largest ε a partition may be opened with; ``delta_max`` likewise.
        lineage_epsilon_max: the cap on what each lineage may learn of a partition, at the partition's δ, which is
            at most ``lineage_delta_max``.
        run_epsilon_max: the cap on one run, at the partition's δ; ``run`` has the other bounds.
        partition_age_days_max: after so many days a partition takes no more charges; required at Level 1.
        levels: where a dataset's Level differs from the domain's.
        share_max: the greatest share of a partition's capacity that one lineage may use.
        load: the plan that every partition declares as its load.
        sealed_everyone: at Level 2, whether the global account is capped or only reported.
        notice_hours: how long before a model release its notice must be on record.
        tuning_public: tuning happens on public data alone; else every trial is charged.
        alerts: shares of capacity at which an alert is raised, ascending.
        commitments: a partition opens only with commitments to its records.
        pipeline: a charge names the digest of what its clean room is to run, and the attestation says the same.
    """

    id: str
    version: int
    issuer: str
    domain: str
    level: int
    effective: int
    epsilon_max: Fraction
    delta_max: Fraction
    lineage_epsilon_max: Fraction
    run_epsilon_max: Fraction
    unit: str
    relation: str
    rules: tuple[str, ...]
    mechanisms: tuple[str, ...]
    records_min: int
    partition_age_days_max: int | None
    attestation: Attestation
    model_release: bool
    lineage_delta_max: Fraction | None = None
    run: RunBounds = UNBOUNDED
    levels: tuple[tuple[str, str, int], ...] = ()
    share_max: Fraction | None = None
    load: RunPlan | None = None
    sealed_everyone: bool = True
    watermark: bool = False
    notice_hours: int = 0
    tuning_public: bool = False
    alerts: tuple[Fraction, ...] = ()
    coalitions: tuple[Coalition, ...] = ()
    commitments: bool = False
    pipeline: bool = False

    @property
    def source(self) -> str:
        """How a decision names it."""
        return f"policy {self.id} version {self.version}"

    @property
    def run_bounds(self) -> RunBounds:
        """All that it bounds a run by, but for its ε."""
        return strictest(
            (self.run, structs.replace(UNBOUNDED, delta_max=self.lineage_delta_max, mechanisms=self.mechanisms))
        )

    def level_of(self, provider: str, dataset: str) -> int:
        """The Level of one dataset."""
        return next((level for at, name, level in self.levels if (at, name) == (provider, dataset)), self.level)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read JSON or YAML and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        return read_document(data, DOCUMENT_BYTES_MAX, cls.of)

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a value and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        known = SHAPE.read(value)
        same = ("attestation", "domain", "effective", "id", "issuer", "level", "mechanisms", "model_release")
        more = ("records_min", "relation", "rules", "unit", "version", *_SAME_OPTIONAL)
        policy = cls(
            **{name: known[name] for name in (*same, *more) if name in known},
            epsilon_max=known["budget"]["epsilon_max"],
            delta_max=known["budget"]["delta_max"],
            lineage_epsilon_max=known["lineage"]["epsilon_max"],
            lineage_delta_max=known["lineage"].get("delta_max"),
            run_epsilon_max=known["run"]["epsilon_max"],
            run=bounds_of(known["run"]),
            partition_age_days_max=known.get("partition_age_days_max"),
            levels=tuple((one["provider"], one["dataset"], one["level"]) for one in known.get("levels", ())),
            share_max=known.get("quota", {}).get("share_max"),
            sealed_everyone=known.get("sealed", {}).get("everyone", "caps") == "caps",
            tuning_public=known.get("tuning") == "public",
            coalitions=tuple(Coalition(**one) for one in known.get("coalitions", ())),
        )
        policy._validate(known)
        return policy

    def _validate(self, known: dict[str, Any]) -> None:
        """Hold the fields against one another. Raises: Inconsistent."""
        levels = {self.level, *(level for _, _, level in self.levels)}
        if 1 in levels and self.partition_age_days_max is None:
            raise r.Inconsistent("partition_age_days_max", "is missing: Level 1 requires renewal")
        if levels == {LEVEL_SEALED} and self.model_release:
            raise r.Inconsistent("model_release", "must be false: at Level 2 no model is released")
        if self.lineage_epsilon_max > self.epsilon_max:
            raise r.Inconsistent("lineage.epsilon_max", "must be at most budget.epsilon_max")
        if self.tuning_public and TUNING in self.mechanisms:
            raise r.Inconsistent("mechanisms", f"must not name {TUNING}: tuning is on public data")
        permitted = set(self.mechanisms)
        if self.load is not None and not permitted.issuperset(kinds_of(self.load.mechanism(self.load.steps))):
            raise r.Inconsistent("load", "must be of permitted mechanisms")
        if any(low >= high for low, high in zip(self.alerts, self.alerts[1:], strict=False)):
            raise r.Inconsistent("alerts", "must rise")
        self._validate_names()
        self._validate_releases(known)

    def _validate_releases(self, known: dict[str, Any]) -> None:
        sealed = LEVEL_SEALED in {self.level, *(level for _, _, level in self.levels)}
        if not sealed and "sealed" in known:
            raise r.Inconsistent("sealed", "is for Level 2, which no dataset has")
        if known.get("sealed", {}).get("inference") == PRIVATE_PREDICTION:
            raise r.Inconsistent("sealed.inference", "private_prediction is refused until it exists")
        if not self.model_release:
            for name in ("watermark", "notice_hours"):
                if known.get(name):
                    raise r.Inconsistent(name, "is for models that are released, and model_release is false")

    def _validate_names(self) -> None:
        pairs = [pair for *pair, _ in self.levels]
        if any(pair in pairs[:place] for place, pair in enumerate(pairs)):
            raise r.Inconsistent("levels", "gives a dataset two Levels")
        names = [one.name for one in self.coalitions]
        if len(set(names)) != len(names):
            raise r.Inconsistent("coalitions", "gives two coalitions one name")
        for place, one in enumerate(self.coalitions):
            if one.epsilon_max > self.epsilon_max:
                raise r.Inconsistent(f"coalitions[{place}].epsilon_max", "must be at most budget.epsilon_max")


_SAME_OPTIONAL: Final = ("alerts", "commitments", "load", "notice_hours", "pipeline", "watermark")
