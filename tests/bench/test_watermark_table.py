"""What the table of watermarks shows: a tenth of a point at most, every mark found again, no foreign one named."""

from __future__ import annotations

import pytest

from tests.bench import foreign_models
from tests.bench.watermark_table import ROWS, row

pytestmark = [pytest.mark.bench, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.mark.parametrize("name", list(ROWS))
def test_a_mark_costs_little_and_is_found(name: str) -> None:
    """After fine-tuning, pruning, rounding and averaging; among ten thousand keys of others none is in the model."""
    found = row(name, *ROWS[name])
    assert float(str(found["accuracy"])) - float(str(found["accuracy_marked"])) <= 0.1
    for change in (
        "score",
        "fine_tuned_100",
        "pruned_half",
        "rounded_8_bits",
        "mean_with_foreign",
        "mean_with_another_mark",
        "mean_with_unmarked_self",
    ):
        assert float(str(found[change])) >= float(str(found["threshold"])), change
    assert found["foreign_named"] == 0


def test_no_mark_is_found_in_ten_thousand_foreign_models() -> None:
    """Networks that were trained without any key, each searched for a thousand marks."""
    found = foreign_models.row()
    assert (found["models"], found["named"]) == (10_000, 0)
    assert found["accuracy"] > 80
    assert found["greatest_score"] < found["threshold"]
