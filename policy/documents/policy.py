"""An SRO's policy for a domain: Level, caps, permitted mechanisms, attestation, release.

{"kind":"policy","v":1,"id":"health-images","version":1,"issuer":"did:web:sro.example","domain":"health",...}
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Final

from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX, Refund
from ledger.mechanisms.decomposition import kinds_of
from ledger.mechanisms.mechanism import RELATIONS
from ledger.mechanisms.plan_reader import AnyPlan
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire.field_types import Did, Name, between, distinct, words
from ledger.wire.records import Record
from policy.checks.field_readers import Inconsistent
from policy.documents.dataset import DatasetName, RecordsMin, Unit
from policy.documents.document import Budget, Delta, Document, Epsilon, Share, Time, Version
from policy.documents.run_bounds import TUNING, Mechanisms, RunBounds, RunLimits, strictest
from policy.documents.trusted_attesters import Attestation

LEVEL_SEALED: Final = 2
DATASETS_MAX: Final = 10_000
MEMBERS_MAX: Final = 64
COALITIONS_MAX: Final = 32
ALERTS_MAX: Final = 16
AGE_DAYS_MAX: Final = 36_500
NOTICE_HOURS_MAX: Final = 8_760
PRIVATE_PREDICTION: Final = "private_prediction"
ROUNDED_DECISIONS: Final = "rounded_decisions"
REGISTRABLE: Final = ("budget", "level", "runs", "spent", "unit")
"""The values of a dataset that a policy may make public: its budget, Level, number of runs, ε so far, and unit."""

_Level = Annotated[int, between(0, LEVEL_SEALED)]


class LineageCap(Record, frozen=True):
    """The cap on what each lineage may learn of a partition, at the partition's δ, which is at most ``delta_max``."""

    epsilon_max: Epsilon
    delta_max: Delta | None = None


class Coalition(Record, frozen=True):
    """Organisations that together stay under a cap of ε at each partition's δ."""

    name: Name
    members: Annotated[tuple[Did, ...], distinct(MEMBERS_MAX, 2)]
    epsilon_max: Epsilon


class DatasetLevel(DatasetName, frozen=True):
    """The Level of one dataset, where it differs from the domain's."""

    level: _Level


class Quota(Record, frozen=True):
    """The greatest share of a partition's capacity that one lineage may use."""

    share_max: Share


class Sealed(Record, frozen=True):
    """At Level 2: whether the global account is capped or only reported, and which queries a model may get."""

    everyone: Annotated[str, words("caps", "watched")]
    inference: Annotated[str, words("attested", PRIVATE_PREDICTION)]


class Policy(Document, frozen=True, dict=True, tag_field="kind", tag="policy"):
    """An SRO's policy for a domain, from ``effective`` (ms) until a later version is.

    Attributes:
        budget: the largest ε and δ a partition may be opened with.
        run: the cap on one run's ε, at the partition's δ, and its other bounds.
        alerts: shares of capacity at which an alert is raised, ascending.
        commitments: a partition opens only with commitments to its records.
        load: the plan that every partition declares as its load.
        notice_hours: how long before a model release its notice must be on record.
        partition_age_days_max: the days after which a partition accepts no more charges; required at Level 1.
        pipeline: a charge names the digest of what its clean room is to run, and the attestation states the same.
        refund: whether leased steps that were not taken are refunded: never, by a post with fresh evidence
            (attested), or by the clean room's statement (stated). Without it they never are, and a lapse posts the
            whole charge; with it a lapse posts the leased steps.
        register: what the public register shows of each dataset; nothing if absent.
        shared_accounts: how a consumer sees the part of others in accounts that it shares: rounded up, exactly, or
            rounded up with its charges decided on the rounded part too, so that none tells it more.
        step_leases: a charge leases its steps before they are taken, so that a copy of its run ends.
        tuning: whether every trial is charged, or tuning happens on public data only.
    """

    attestation: Attestation
    budget: Budget
    domain: Name
    effective: Time
    id: Name
    issuer: Did
    level: _Level
    lineage: LineageCap
    mechanisms: Mechanisms
    model_release: bool
    records_min: RecordsMin
    relation: Annotated[str, words(*RELATIONS)]
    rules: Annotated[tuple[Annotated[str, words(*RULE_NAMES)], ...], distinct(len(RULE_NAMES))]
    run: RunLimits
    unit: Unit
    version: Version
    alerts: Annotated[tuple[Share, ...], distinct(ALERTS_MAX)] = ()
    coalitions: Annotated[tuple[Coalition, ...], distinct(COALITIONS_MAX)] = ()
    commitments: bool = False
    levels: Annotated[tuple[DatasetLevel, ...], distinct(DATASETS_MAX)] = ()
    load: AnyPlan | None = None
    notice_hours: Annotated[int, between(0, NOTICE_HOURS_MAX)] = 0
    partition_age_days_max: Annotated[int, between(1, AGE_DAYS_MAX)] | None = None
    pipeline: bool = False
    quota: Quota | None = None
    refund: Refund | None = None
    register: Annotated[tuple[Annotated[str, words(*REGISTRABLE)], ...], distinct(len(REGISTRABLE))] = ()
    sealed: Sealed | None = None
    shared_accounts: Annotated[str, words("rounded", "exact", ROUNDED_DECISIONS)] = "rounded"
    step_leases: bool = False
    tuning: Annotated[str, words("charged", "public")] = "charged"
    watermark: bool = False
    bytes_max: ClassVar[int] = POLICY_DOCUMENT_BYTES_MAX

    def __hash__(self) -> int:
        """A hash without the Levels: each charge looks up its policies, and ten thousand Levels are slow to hash."""
        return hash((self.id, self.version, self.effective))

    @property
    def source(self) -> str:
        """Its name in decisions."""
        return f"policy {self.id} version {self.version}"

    @property
    def share_max(self) -> Fraction | None:
        """The quota of each lineage, if there is one."""
        return self.quota.share_max if self.quota else None

    @property
    def sealed_everyone(self) -> bool:
        """At Level 2, whether the global account is capped or only reported."""
        return self.sealed is None or self.sealed.everyone == "caps"

    @property
    def run_bounds(self) -> RunBounds:
        """All its bounds on a run other than the ε."""
        return strictest((self.run, RunBounds(self.lineage.delta_max, None, None, None, self.mechanisms)))

    def level_of(self, provider: str, dataset: str) -> int:
        """The Level of one dataset."""
        return self._own_levels.get((provider, dataset), self.level)

    @cached_property
    def _own_levels(self) -> dict[tuple[str, str], int]:
        """The Levels of datasets that differ from the domain's, cached: the gate reads them at every charge."""
        return {(level.provider, level.dataset): level.level for level in self.levels}

    def __post_init__(self) -> None:
        """Check the fields against one another. Raises: Malformed, Inconsistent."""
        super().__post_init__()
        levels = {self.level, *(level.level for level in self.levels)}
        if 1 in levels and self.partition_age_days_max is None:
            raise Inconsistent("partition_age_days_max", "is missing: Level 1 requires renewal")
        if levels == {LEVEL_SEALED} and self.model_release:
            raise Inconsistent("model_release", "must be false: at Level 2 no model is released")
        if self.lineage.epsilon_max > self.budget.epsilon_max:
            raise Inconsistent("lineage.epsilon_max", "must be at most budget.epsilon_max")
        if self.tuning == "public" and TUNING in self.mechanisms:
            raise Inconsistent("mechanisms", f"must not name {TUNING}: tuning is on public data")
        permitted = set(self.mechanisms)
        if self.load is not None and not permitted.issuperset(kinds_of(self.load.mechanism(self.load.steps))):
            raise Inconsistent("load", "must be of permitted mechanisms")
        if any(low >= high for low, high in zip(self.alerts, self.alerts[1:], strict=False)):
            raise Inconsistent("alerts", "must rise")
        self._check_names()
        self._check_shared_accounts()
        self._check_releases(levels)

    def _check_names(self) -> None:
        if len(self._own_levels) != len(self.levels):
            raise Inconsistent("levels", "gives a dataset two Levels")
        if len({coalition.name for coalition in self.coalitions}) != len(self.coalitions):
            raise Inconsistent("coalitions", "gives two coalitions one name")
        for place, cap in enumerate(self.coalitions):
            if cap.epsilon_max > self.budget.epsilon_max:
                raise Inconsistent(f"coalitions[{place}].epsilon_max", "must be at most budget.epsilon_max")

    def _check_shared_accounts(self) -> None:
        if self.shared_accounts != ROUNDED_DECISIONS:
            return
        if self.alerts:
            rule = (
                f"must be empty where shared_accounts is {ROUNDED_DECISIONS}: a charge's entry shows which it crosses"
            )
            raise Inconsistent("alerts", rule)
        if {"runs", "spent"} & {*self.register}:
            rule = f"must not name runs or spent where shared_accounts is {ROUNDED_DECISIONS}: they show the exact sum"
            raise Inconsistent("register", rule)

    def _check_releases(self, levels: set[int]) -> None:
        if self.sealed is not None and LEVEL_SEALED not in levels:
            raise Inconsistent("sealed", "is for Level 2, which no dataset has")
        if self.sealed is not None and self.sealed.inference == PRIVATE_PREDICTION:
            raise Inconsistent("sealed.inference", "private_prediction is refused until it exists")
        if not self.model_release:
            for name in ("watermark", "notice_hours"):
                if getattr(self, name):
                    raise Inconsistent(name, "is for models that are released, and model_release is false")
