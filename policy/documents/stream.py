"""A TDP's stream: how new slices of a dataset open and old ones retire, and how often a person may appear in them.

{"kind":"stream","v":1,"provider":"did:web:hospital.example","dataset":"claims","version":1,"period":"week",...}
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Final

from ledger.commands.registration.partition import BlockPrices, UnitRecords
from ledger.domain.gate import APPEARANCES_MAX
from ledger.filters import Catalogue
from ledger.mechanisms.mechanism import RELATIONS
from ledger.mechanisms.plan_reader import AnyPlan
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire.exact_numbers import DELTA_MIN, format_number
from ledger.wire.field_types import Did, Name, between, exact, words
from ledger.wire.records import Record
from policy.checks.calendar_periods import PERIODS
from policy.checks.field_readers import Inconsistent
from policy.documents.dataset import RecordsMin, Unit
from policy.documents.document import Document, Epsilon, Version
from policy.documents.policy import AGE_DAYS_MAX
from policy.documents.slice_budget import slice_budget

WINDOW_MAX: Final = 1_024
"""The most slices of one run."""
COMMITTED: Final = "committed"
_Delta = Annotated[Fraction, exact(below=Fraction(1))]


class StreamBudget(Record, frozen=True):
    """The budget of all slices together for one person, or if the unit is a record, for one of its records in each."""

    delta: _Delta
    epsilon: Epsilon


class StreamDocument(Document, frozen=True, tag_field="kind", tag="stream"):
    """The slices of one dataset: each an ordinary partition, whose name is its period.

    Attributes:
        appearances_max: how many slices a person may be in, retired ones included.
        budget: of one person or record, by the unit; a slice has a part if a person may be in several.
        life_days: the days after which a slice accepts no more charges, and is retired at the next advance.
        persons: whether each slice commits to its persons, so that one appearance too many is detected, or the provider
            declares that there is none.
        records_min: a slice with fewer records does not open.
        window_max: the most slices of the stream in one run.
    """

    appearances_max: Annotated[int, between(1, APPEARANCES_MAX)]
    budget: StreamBudget
    dataset: Name
    life_days: Annotated[int, between(1, AGE_DAYS_MAX)]
    period: Annotated[str, words(*PERIODS)]
    provider: Did
    records_min: RecordsMin
    relation: Annotated[str, words(*RELATIONS)]
    rule: Annotated[str, words(*RULE_NAMES)]
    unit: Unit
    version: Version
    window_max: Annotated[int, between(1, WINDOW_MAX)]
    load: AnyPlan | None = None
    persons: Annotated[str, words(COMMITTED, "declared")] = COMMITTED
    prices: BlockPrices | None = None
    slack: Annotated[Fraction, exact(below=Fraction(1), positive=True)] | None = None
    unit_records_max: UnitRecords | None = None

    def __post_init__(self) -> None:
        """Check the fields against one another. Raises: Malformed, Inconsistent."""
        super().__post_init__()
        if self.appearances_max == 1 and self.persons != COMMITTED:
            raise Inconsistent("persons", f"must be {COMMITTED!r}: that a person is in one slice only is held by it")
        if (self.unit == "record") != (self.unit_records_max is None):
            raise Inconsistent("unit_records_max", "is stated if and only if a unit holds several records")
        if self.prices is not None and self.rule != Catalogue.kind():
            raise Inconsistent("prices", f"is for the rule {Catalogue.kind()}, not for {self.rule}")
        _, delta = self.slice_budget
        if self.budget.delta and delta < DELTA_MIN:
            detail = f"{format_number(delta)} a slice, and a partition needs at least 1e-11 or 0"
            raise Inconsistent(
                "budget.delta", f"leaves a delta of {detail}: raise it, or lower appearances_max or epsilon"
            )
        if self.slack is not None and self.slack >= delta:
            raise Inconsistent("slack", f"must be less than a slice's delta, {format_number(delta)}")

    @property
    def source(self) -> str:
        """Its name in decisions."""
        return f"stream {self.dataset} of {self.provider} version {self.version}"

    @property
    def slice_budget(self) -> tuple[Fraction, Fraction]:
        """ε and δ of a slice: see :mod:`policy.documents.slice_budget`."""
        return slice_budget(self.budget.epsilon, self.budget.delta, self.appearances_max)

    def soundness(self, most: StreamBudget) -> str:
        """Why a person's loss stays within the budget, as text for people.

        Args:
            most: the budget of all slices together, those of earlier versions included.
        """
        whole, ending = _pair(self.budget.epsilon, self.budget.delta), ""
        if most != self.budget:
            together = _pair(most.epsilon, most.delta)
            ending = f"; slices of an earlier version have more, and all together show at most {together}"
        if self.unit == "record":
            ending += "; that is of one record in a slice: of a person with several there, more may be shown"
        notes = (
            "commitments to persons show one appearance more" if self.persons == COMMITTED else "its provider says so"
        )
        if self.appearances_max == 1:
            return f"a person is in one slice only ({notes}), and each slice has the whole budget {whole}{ending}"
        part = _pair(*self.slice_budget)
        return (
            f"a person is in at most {self.appearances_max} slices ({notes}); each slice has {part}, which by group "
            f"privacy keeps what all of them show of a person within {whole}{ending}"
        )


def _pair(epsilon: Fraction, delta: Fraction) -> str:
    return f"({format_number(epsilon)}, {format_number(delta)})"
