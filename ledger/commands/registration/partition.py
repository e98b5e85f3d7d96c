"""A partition opens with a budget and a rule that is good for every cap its policy names."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from ledger.accounts.pricing import ComputedPrices
from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts, Partition
from ledger.domain.gate import Caps
from ledger.domain.outcomes import Code
from ledger.domain.roles import TDP
from ledger.filters import RULES, Cap, Catalogue, NoRoom, Opening, Rule, Terms, choose_rule
from ledger.filters.step_types import PRICE_MAX, TYPES_MAX
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import GROUP_MAX, Mechanism, Relation
from ledger.mechanisms.plan_reader import AnyPlan
from ledger.mechanisms.price_proofs import RULE_NAMES, NotPriced
from ledger.mechanisms.run_plan import RECORD, group_of
from ledger.wire.exact_numbers import DELTA_MIN, DELTA_ONE, EPSILON_MAX, format_number
from ledger.wire.field_types import Did, Name, Sha256, between, distinct, text, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

COMMITMENTS_MAX: Final = 64
"""Documents of commitments that one partition names, each of up to 8,190 records, or persons of a slice."""
UNITS: Final = ("record", "user")
RuleTerms = Annotated[
    Terms,
    Meta(
        title="RuleTerms",
        description="the rule by which charges are admitted, as it was fixed when the partition was opened; of two "
        "divisions of δ that its first charge chooses from, the chosen one from then on",
    ),
]
BlockPrices = Annotated[tuple[Annotated[int, between(1, PRICE_MAX)], ...], Meta(min_length=1, max_length=TYPES_MAX)]
"""Ticks of a block of each kind of step."""
UnitRecords = Annotated[int, between(1, GROUP_MAX)]
"""Records of one privacy unit."""


class OpenPartition(Record, frozen=True):
    """A slice of a dataset with a budget (ε, δ) of its own.

    Attributes:
        records: a public lower bound on how many there are.
        unit_records_max: how many records one privacy unit holds at most; absent where the unit is the record.
        slack: the part of δ kept for black boxes.
        load: the plan that the partition is expected to be charged with.
        prices: of the rule ``catalogue``: the ticks that a block of each kind of step in the load costs, in order.
        commitments: digests of the stored commitments to its records and, of a stream's slice, to its persons.
        reason: why the budget is above the recommended one.
    """

    provider: Did
    dataset: Name
    partition: Name
    epsilon: Fraction
    delta: Fraction
    relation: Relation
    unit: Annotated[str, words(*UNITS)]
    records: Annotated[int, between(1, 10**12)]
    rule: Annotated[str, words(*RULE_NAMES)]
    data_key: Name
    unit_records_max: UnitRecords | None = None
    slack: Fraction | None = None
    load: AnyPlan | None = None
    prices: BlockPrices | None = None
    commitments: Annotated[tuple[Sha256, ...], distinct(COMMITMENTS_MAX)] = ()
    reason: Annotated[str, text(REASON_MAX)] | None = None

    def __post_init__(self) -> None:
        """Check that only a unit of several records states how many. Raises: Malformed."""
        super().__post_init__()
        if self.unit == "record" and self.unit_records_max is not None:
            raise Malformed("unit_records_max", "is for a unit that holds several records, not for 'record'")
        if self.unit != "record" and self.unit_records_max is None:
            raise Malformed("unit_records_max", "is missing: how many records does one unit hold at most?")
        if self.prices is not None and self.rule != Catalogue.kind():
            raise Malformed("prices", f"is for the rule {Catalogue.kind()}, not for {self.rule}")

    @property
    def unit_records(self) -> int:
        """How many records one privacy unit holds at most."""
        return self.unit_records_max or 1

    @property
    def ref(self) -> str:
        """``provider/dataset/partition``."""
        return f"{self.provider}/{self.dataset}/{self.partition}"


class Opened(Record, frozen=True):
    """The capacities of the partition's own budget and of each cap, and the terms of its rule, as the entry records."""

    caps: tuple[Cap, ...]
    terms: RuleTerms


def decide(context: Context[OpenPartition]) -> Decision:
    """Decide an opening."""
    body, prices = context.body, context.prices
    caps, rule = opening(context)
    epsilons = dict.fromkeys((body.epsilon, caps.lineage))
    try:
        opened = Opened(tuple(prices.capacity(rule, epsilon) for epsilon in epsilons), rule)
        _require_blocks(body, opened)
    except NoRoom as closed:
        raise _closed_rejection(body, closed, caps.slice_words) from None
    except Malformed as error:
        raise error.under("body") from None
    return Decision(Code.PERMITTED, derived=opened.to_json())


def _require_blocks(body: OpenPartition, opened: Opened) -> None:
    """Declared prices leave room for a block of each kind under each cap. Raises: Malformed."""
    if body.prices is not None and isinstance(opened.terms, Catalogue):
        for cap in opened.caps:
            opened.terms.require_blocks(cap.capacity[0] or 0)


def opening(context: Context[OpenPartition]) -> tuple[Caps, Rule]:
    """Make every decision on an opening except whether its caps have room. Raises: Malformed, Rejected."""
    facts, body = context.facts, context.body
    context.require_role()
    epsilon, delta = body.epsilon, body.delta
    if not 0 < epsilon <= EPSILON_MAX:
        detail = f"body.epsilon: must be greater than 0 and at most {EPSILON_MAX}"
        raise Rejected(Code.MALFORMED, detail, "body.epsilon")
    if delta and not DELTA_MIN <= delta < 1:
        raise Rejected(Code.MALFORMED, "body.delta: must be 0, or at least 1e-11 and less than 1", "body.delta")
    if body.ref in facts.partitions:
        raise Rejected(Code.CONFLICT, f"{body.ref} was opened before; new records open a partition of a new name")
    _own_data_key(facts, body)
    caps = dict(context.require_permit().caps)[body.ref]
    return caps, _rule_for(body, caps, context.prices)


def _own_data_key(facts: Facts, body: OpenPartition) -> None:
    """Check that the data key is new: a key released for another partition would open this one without a charge."""
    for other in facts.partitions.values():
        if (other.provider, other.data_key) == (body.provider, body.data_key):
            detail = f"body.data_key: {body.data_key} opens {other.ref} already; a new partition needs a key of its own"
            raise Rejected(Code.CONFLICT, detail, "body.data_key")


def _rule_for(body: OpenPartition, caps: Caps, prices: ComputedPrices) -> Rule:
    """The rule that a new partition gets under these caps. Raises: Malformed, Rejected."""
    opening = opening_of(body, caps.lineage)
    try:
        return prices.number(choose_rule, body.rule, opening)
    except NoRoom as closed:
        raise _closed_rejection(body, closed, caps.slice_words) from None
    except NotPriced as error:
        raise Rejected(Code.MALFORMED, f"body.load: {error}", "body.load") from None
    except Malformed as error:
        raise error.under("body") from None


def opening_of(body: OpenPartition, lineage: Fraction) -> Opening:
    """The opening that a partition declares for its rule, and the cap of a lineage. Raises: Malformed, Rejected."""
    slack = body.slack or Fraction(0)
    if slack and slack >= body.delta:
        raise Rejected(Code.MALFORMED, "body.slack: must be less than δ", "body.slack")
    caps = body.epsilon, lineage
    return Opening(body.delta, caps, _load(body), body.relation, int(slack * DELTA_ONE), body.prices)


def _load(body: OpenPartition) -> Mechanism | None:
    """The declared load as one privacy unit sees it. Raises: Rejected."""
    plan = body.load
    if RULES[body.rule].per_unit and body.unit not in {RECORD, plan.unit if plan else RECORD}:
        detail = f"body.unit: must be 'record' for the rule {body.rule}, or what its load clips by"
        raise Rejected(Code.MALFORMED, detail, "body.unit")
    if plan is None:
        return None
    try:
        return group_privacy(group_of(plan, body.unit, body.unit_records), plan.mechanism(plan.steps))
    except Malformed as error:
        raise error.under("body.load") from None


def _closed_rejection(body: OpenPartition, closed: NoRoom, slice_words: str = "") -> Rejected:
    where = f"{slice_words}, " if slice_words else ""
    detail = f"body.epsilon: {where}at a δ of {format_number(body.delta)} {closed}"
    return Rejected(Code.MALFORMED, detail, "body.epsilon")


def apply(change: Change[OpenPartition]) -> None:
    """Add the partition with its rule."""
    body = change.body
    change.state.partitions[body.ref] = Partition(
        ref=body.ref,
        provider=body.provider,
        dataset=body.dataset,
        epsilon=body.epsilon,
        delta=body.delta,
        relation=body.relation,
        unit=body.unit,
        unit_records_max=body.unit_records,
        records=body.records,
        data_key=body.data_key,
        terms=write(change.recorded(Opened).terms).decode(),
        opened=change.entry.time,
        retired=False,
        index=change.index,
        commitments=body.commitments,
    )


PARTITION: Final = CommandKind(
    "partition", OpenPartition, decide, (TDP,), "/v1/partitions", apply, recorded=Opened, changes_prices=True
)
