"""Values that papers and libraries published, met by our accountant and never undercut.

``published_values.json`` holds a row for each: where it was found, the mechanism, and one of four kinds.

exact     the value follows from a closed formula, which the source names: ours is at least that, and at most
          ``tolerance`` above, relatively.
upper     a bound that somebody else's accountant proved: ours is at most that, ``tolerance`` allowed. Where the row
          says ``tight``, the bound is within ``tolerance`` of the truth and ours is not lower either.
lower     no valid bound can be lower, ours neither.
estimate  a number without a side, such as one read back from a calibration: ours is within ``tolerance``.

A row with an ``order`` is a Rényi loss in nat; one with a ``delta`` is an ε. ``published`` is what the source
printed where the row's value was computed anew, to thirty digits, from the formula.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounting.renyi import price
from tests.factories.mechanisms import parse_mechanism

Row = dict[str, Any]
ROWS: Final[list[Row]] = json.loads(Path(__file__).with_name("published_values.json").read_text())
NAT: Final = 2**40


def _ours(row: Row) -> Fraction:
    mechanism = parse_mechanism(row["mechanism"])
    if "order" in row:
        (units,) = price(mechanism, row["relation"], (row["order"],))
        assert units is not None
        return Fraction(units, NAT)
    return report_epsilon(mechanism, Fraction(row["delta"]), row["relation"]).epsilon


SLOW: Final = frozenset(
    {
        "fourier-ten-settings",
        "opacus-prv-0.8-1/20-1000",
        "opacus-prv-0.8-1/5-100",
        "poisson-25-steps",
        "poisson-3-steps",
        "tf-example-microbatches-pld",
        "tf-example-pld",
        "tf-mnist-15-epochs",
        "tf-statement-pairs-pld",
        "tf-statement-triples-rdp",
        "tf-tutorial-45-epochs",
    }
)
"""Each takes the better part of a second or more, and another row of the same source or mechanism is quicker."""


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row["name"], marks=[pytest.mark.soak] if row["name"] in SLOW else []) for row in ROWS],
)
def test_published_value(row: Row) -> None:
    """Ours lies on the right side of what was published, and as near as the row asks."""
    ours, theirs, tolerance = _ours(row), Fraction(row["rho" if "order" in row else "epsilon"]), row["tolerance"]
    above, below = theirs * (1 + Fraction(tolerance)), theirs * (1 - Fraction(tolerance))
    reported = f"ours {float(ours):.9g}, published {float(theirs):.9g} ({row['source']})"
    match row["kind"]:
        case "exact":
            assert theirs <= ours <= above, reported
        case "upper":
            assert ours <= above, reported
            assert ours >= (below if row["tight"] else 0), reported
        case "lower":
            assert ours >= below, reported
        case "estimate":
            assert below <= ours <= above, reported
        case kind:
            pytest.fail(f"{kind!r} is no kind of published value")


def test_enough_rows() -> None:
    """Sixty rows and more, no two of the same name or question, from forty sources, of every mechanism."""
    questions = {json.dumps([row["mechanism"], row["relation"], row.get("delta"), row.get("order")]) for row in ROWS}
    assert len(ROWS) == len({row["name"] for row in ROWS}) >= 60
    # Once a bound from above and once from below is asked of the same composition.
    assert len(questions) >= len(ROWS) - 1
    assert len({row["source"] for row in ROWS}) >= 40
    assert {row["mechanism"]["kind"] for row in ROWS} >= {
        "composed",
        "discrete_gaussian",
        "full_batch_epochs",
        "gaussian",
        "group",
        "laplace",
        "poisson_gaussian",
        "pure",
        "randomised_response",
        "repeat_and_select",
        "sampled_without_replacement",
        "self_composed",
        "zcdp",
    }
    assert any(row["mechanism"].get("mechanism", {}).get("kind") == "black_box" for row in ROWS)
    assert {row["relation"] for row in ROWS} == {"ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL"}
    assert {row["kind"] for row in ROWS} == {"exact", "upper", "lower", "estimate"}
    assert sum(row["kind"] == "exact" for row in ROWS) >= 30
