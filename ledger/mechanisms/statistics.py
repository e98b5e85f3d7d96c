"""Statistics of a partition: the queries. Their prices and noise are :mod:`ledger.mechanisms.statistic_prices`.

    {"column": "inputs[3]", "edges": ["18", "65"], "epsilon": "0.1", "kind": "histogram", "name": "ages"}
    {"columns": [{"column": "inputs[0]", "lower": "-4", "upper": "4"}], "kind": "moments", "name": "x", "rho": "0.005"}

A statistic is a vector of whole numbers, to which whole noise is added: ``epsilon`` chooses discrete Laplace noise, or
permute-and-flip for a quantile, and ``rho`` discrete Gaussian noise. Either is what one changed record costs under the
plan's relation. A user with k records, and a record that a join repeats k times, are groups of k: the charge
prices them so, from the terms of each partition and its own ``unit_records_max``.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from ledger.mechanisms.mechanism import Delta, Epsilon
from ledger.wire.exact_numbers import format_number, parse_number
from ledger.wire.field_types import between, distinct, exact, pattern, register_type, rule
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

CELLS_MAX: Final = 4_096
"""Numbers in one statistic that is a table of counts."""
CANDIDATES_MAX: Final = 1_024
"""Numbers among which a quantile is chosen."""
CLASSES_MAX: Final = 64
"""Classes of a confusion matrix: the root of ``CELLS_MAX``."""
SCORED_MAX: Final = 1 << 20
"""Records of one class whose scores are compared with those of the other."""
COLUMNS_MAX: Final = 256
"""Columns whose sums or moments are one statistic."""
CATEGORY_MAX: Final = 2**53 - 1
"""A category is a whole number that JSON and a 64-bit float hold exactly."""
LEVEL_DENOMINATOR_MAX: Final = 1_000
"""The denominator of a quantile's level: a percentage or a per mille is a level."""
BOUND_MAX: Final = 10**12
"""Bounds, edges and candidates lie between this and its negative."""
GRID: Final = 1 << 20
"""A clipped value is rounded to 2^-20 of its bounds' size, so that sums are of integers: exact in any order."""


class Coordinate(Fraction):
    """An exact number of either sign: a bound, an edge or a candidate."""


def _read_coordinate(value: Any) -> Coordinate:  # noqa: ANN401 - what is no string is refused
    signed = isinstance(value, str) and value.startswith("-")
    number = parse_number(value[1:] if signed else value, "")
    if number > BOUND_MAX or (signed and not number):
        raise Malformed("", f"must lie between -{BOUND_MAX} and {BOUND_MAX}, and zero has no sign")
    return Coordinate(-number if signed else number)


def _write_coordinate(value: Coordinate) -> str:
    return f"-{format_number(-value)}" if value < 0 else format_number(Fraction(value))


register_type(
    Coordinate, _read_coordinate, _write_coordinate, {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+|/[0-9]+)?$"}
)

Column = Annotated[
    str,
    pattern(
        r"((inputs|targets|outputs)(\.[A-Za-z0-9_-]{1,64})?(\[(0|[1-9][0-9]{0,8})\])?|predictions)",
        "must be 'inputs' or 'targets', with a part's name and a place, as 'inputs[3]' or 'inputs.age';"
        " of metrics also 'outputs', with a place, or 'predictions'",
    ),
]
"""An array of the partition's records, and a place in each record's row of it; for metrics also a model's output."""
OF_MODELS: Final = ("outputs", "predictions")
"""The columns that a trained model has of each record: its scores, and the class of the greatest."""
AnswerName = Annotated[str, pattern("[A-Za-z0-9][A-Za-z0-9_-]{0,63}", "must be 1 to 64 letters, digits, '_' or '-'")]
"""A name without dots: the parts of an answer are named after a dot."""
Rho = Annotated[Fraction, exact(Fraction(1, 10**12), Fraction(256))]
Coordinates = tuple[Coordinate, ...]


class Statistic(Record, frozen=True, kw_only=True, tag_field="kind"):
    """One query to the records. ``name`` is that of its answer; see the module for ``epsilon`` and ``rho``."""

    name: AnswerName
    epsilon: Epsilon | None = None
    rho: Rho | None = None

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        if (self.epsilon is None) == (self.rho is None):
            raise Malformed("epsilon", "or rho must be given: exactly one of the two sets the noise")


class Count(Statistic, frozen=True, tag="count"):
    """How many records there are; of joined records the size of the join."""


class Histogram(Statistic, frozen=True, tag="histogram"):
    """How many values lie below the first edge, from each edge to the next, and from the last one on."""

    column: Column
    edges: Annotated[Coordinates, distinct(CELLS_MAX - 1)]

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        _require_rising(self.edges, "edges")


class Categories(Statistic, frozen=True, tag="categories"):
    """How many records have each declared category; a record with another category is in none of them."""

    column: Column
    values: Annotated[tuple[Annotated[int, between(-CATEGORY_MAX, CATEGORY_MAX)], ...], distinct(CELLS_MAX)]


class PrivateCategories(Statistic, frozen=True, tag="private_categories"):
    """Which categories a column has, and how many records have each: those with enough records for a noisy threshold.

    Attributes:
        delta: the most that a category of one record is released with; it is charged beside ``epsilon``.
        categories_max: of those beyond the threshold, so many are released: the ones with the greatest noisy counts.
    """

    categories_max: Annotated[int, between(1, CELLS_MAX)]
    column: Column
    delta: Delta

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        if self.epsilon is None:
            raise Malformed("rho", "is for sums and counts of what is declared: a threshold is proven for epsilon")


class ClippedColumn(Record, frozen=True):
    """A column and the public bounds that its values are clipped to."""

    column: Column
    lower: Coordinate
    upper: Coordinate

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        _require_rising((self.lower, self.upper), "upper")


Columns = Annotated[tuple[ClippedColumn, ...], distinct(COLUMNS_MAX)]


class ClippedSum(Statistic, frozen=True, tag="clipped_sum"):
    """The sum of each column's clipped values."""

    columns: Columns


class Moments(Statistic, frozen=True, tag="moments"):
    """The number of records, and of each column's clipped values the mean and the variance."""

    columns: Columns


class Quantile(Statistic, frozen=True, tag="quantile"):
    """The candidate that has about this share of a column's values below it."""

    candidates: Annotated[Coordinates, distinct(CANDIDATES_MAX, 2)]
    column: Column
    level: Annotated[Fraction, exact(below=Fraction(1), positive=True)]

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        _require_rising(self.candidates, "candidates")
        if self.epsilon is None:
            raise Malformed("rho", "is for sums and counts: a quantile is chosen by permute-and-flip")
        if self.level.denominator > LEVEL_DENOMINATOR_MAX:
            raise Malformed("level", f"must be a fraction over at most {LEVEL_DENOMINATOR_MAX}")


class ConfusionMatrix(Statistic, frozen=True, tag="confusion_matrix"):
    """How many records of each class were predicted to be of each class; both are numbered from 0."""

    classes: Annotated[int, between(2, CLASSES_MAX)]
    predicted: Column
    truth: Column


class RocCurve(Statistic, frozen=True, tag="roc_curve"):
    """How many records of each of two classes, 0 and 1, have a score in each of ``buckets`` equal parts of [0, 1].

    The area under the curve (AUC) is computed from these counts.
    """

    buckets: Annotated[int, between(2, CELLS_MAX // 2)]
    score: Column
    truth: Column


class AreaUnderCurve(Statistic, frozen=True, tag="area_under_curve"):
    """The area under the ROC curve, from all pairs of a record of class 1 and one of class 0.

    Attributes:
        negatives_max: records of class 0 that count, the first ones; ``positives_max`` those of class 1. The noise
            grows with the greater of the two, so they are best near the true numbers.
    """

    negatives_max: Annotated[int, between(1, SCORED_MAX)]
    positives_max: Annotated[int, between(1, SCORED_MAX)]
    score: Column
    truth: Column


class SquaredError(Statistic, frozen=True, tag="squared_error"):
    """The sum of squared differences of two columns: what a regression predicts, and what is so.

    Attributes:
        bound: the most that one difference counts as; one that is no number counts as much.
    """

    bound: Annotated[Fraction, exact(most=Fraction(BOUND_MAX), positive=True)]
    predicted: Column
    truth: Column


_ALL = (
    Count
    | Histogram
    | Categories
    | PrivateCategories
    | ClippedSum
    | Moments
    | Quantile
    | ConfusionMatrix
    | RocCurve
    | AreaUnderCurve
    | SquaredError
)
if TYPE_CHECKING:
    AnyStatistic = Statistic
else:
    AnyStatistic = Annotated[_ALL, rule("is not a statistic this ledger knows")]
STATISTICS: Final[tuple[type[Statistic], ...]] = get_args(_ALL)


def columns_of(statistic: Statistic) -> tuple[str, ...]:
    """The columns that a statistic reads."""
    match statistic:
        case ClippedSum() | Moments():
            return tuple(column.column for column in statistic.columns)
        case Histogram() | Categories() | PrivateCategories() | Quantile():
            return (statistic.column,)
        case ConfusionMatrix() | SquaredError():
            return (statistic.truth, statistic.predicted)
        case RocCurve() | AreaUnderCurve():
            return (statistic.truth, statistic.score)
        case _:
            return ()


def require_own_columns(statistics: tuple[Statistic, ...], where: str = "statistics") -> None:
    """Raises: Malformed, for a statistic of records that reads what only a trained model gives."""
    for place, statistic in enumerate(statistics):
        if any(column.startswith(OF_MODELS) for column in columns_of(statistic)):
            raise Malformed(f"{where}[{place}]", "reads what a model gives: that is for the metrics of a staged plan")


def _require_rising(values: Coordinates, where: str) -> None:
    if any(left >= right for left, right in pairwise(values)):
        raise Malformed(where, "must rise")
