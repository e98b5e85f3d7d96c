"""Types of the fields of planning reports: percentages and account holders, as JSON shows them."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Final, Self

from msgspec import Meta

from ledger.accounts.headroom import is_infinite
from ledger.filters import Cap, Rule
from ledger.mechanisms.loss import Loss
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.exact_numbers import ceil_decimal
from ledger.wire.field_types import between, register_type

NO_ROOM: Final = "no room at all"
INFINITE: Final = "infinite"
"""The share for a charge without a bound, which is no share of a capacity."""

Natural = Annotated[int, between(0, INTEGER_MAX)]
Moment = Annotated[int, Meta(ge=0, le=INTEGER_MAX, description="Unix milliseconds")]
"""A time; only documents write it as text."""
Holder = Annotated[
    str,
    Meta(
        pattern="^(global|lineage:(0|[1-9][0-9]{0,18}))$",
        description="everyone, or one lineage by its node; a hypothetical lineage has one that is no entry's",
    ),
]


WhoseAccount = Annotated[str, Meta(description="whose account it is, in words")]


class Percent(str):
    """A share of capacity for people, rounded up; ``share`` is the exact one, None if there is no room."""

    __slots__ = ("share",)
    share: Fraction | None

    @classmethod
    def of(cls, share: Fraction | None) -> Self:
        """The percentage of a share."""
        percent = cls(NO_ROOM if share is None else f"{ceil_decimal(100 * share, 1)} %")
        percent.share = share
        return percent

    @classmethod
    def of_loss(cls, rule: Rule, loss: Loss, cap: Cap) -> Self:
        """The percentage of a cap's capacity that a loss is."""
        return cls.infinite() if is_infinite(rule, loss, cap) else cls.of(rule.share(loss, cap))

    @classmethod
    def infinite(cls) -> Self:
        """The percentage of a loss without a bound."""
        percent = cls(INFINITE)
        percent.share = None
        return percent


register_type(
    Percent,
    Percent,
    str,
    {
        "type": "string",
        "pattern": rf"^({NO_ROOM}|{INFINITE}|[0-9]+\.[0-9] %)$",
        "description": "percent of capacity, rounded up",
    },
)
