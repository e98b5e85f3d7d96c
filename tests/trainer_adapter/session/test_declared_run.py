"""A partition whose provider sealed other records than it declares: the run ends by name, and what began is charged."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.declared.declaration import Declaration
from client.dataset_files.sealed_records import RecordLayout, write_sealed
from client.dataset_files.tokens.token_counts import TOKEN_BYTES
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.statistics import Categories, Count
from ledger.mechanisms.statistics_plans import StatisticsPlan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.statistics.statistics_run import run_statistics
from trainer_adapter.training.attach import attach
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.run_options import Options

RECORDS = 700
DECLARED = Declaration(
    {"age": ColumnRule(bounds=("0", "120")), "vaccine": ColumnRule(categories=("1", "2"))},
    ColumnRule(categories=("0", "1")),
    RECORDS,
    1,
)
ARRAYS = np.dtype([("inputs", "<f4", (2,)), ("person", "|u1", (TOKEN_BYTES,)), ("targets", "<i8")])
Rows = NDArray[np.void]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service with one partition."""
    with open_place(tmp_path_factory.mktemp("declared") / "place", mechanisms=["poisson_gaussian", "pure"]) as found:
        yield found


def _rows(count: int = RECORDS) -> Rows:
    rows = np.zeros(count, ARRAYS)
    rows["inputs"][:, 0], rows["inputs"][:, 1] = np.arange(count) % 121, 1 + np.arange(count) % 2
    rows["targets"] = np.arange(count) % 2
    rows["person"] = np.random.default_rng(0).integers(0, 256, (count, TOKEN_BYTES))
    return rows


def _twice() -> Rows:
    rows = _rows()
    rows["person"][699] = rows["person"][0]
    return rows


def _put(place: Place, rows: Rows, declared: Declaration | None = DECLARED) -> None:
    """Seal records as another program may: without a look at what it declares."""
    file = io.BytesIO()
    write_sealed(file, place.data_key, place.ref, RecordLayout(rows.dtype, ("age", "vaccine"), (), declared), [rows])
    place.sealed.write_bytes(file.getvalue())


def _spoilt(array: str, place: Any, value: float) -> Rows:  # noqa: ANN401 - an index
    rows = _rows()
    rows[array][place] = value
    return rows


def _statistics(place: Place, name: str) -> None:
    plan = StatisticsPlan("REPLACE_SPECIAL", (Count(name="n", epsilon=Fraction(1, 100)),))
    run_statistics(replace(place.assignment(name), plan=plan), place.service, lambda _: None)


def _training(place: Place, name: str) -> None:
    model = nn.Linear(2, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = Plan(Fraction(1, 70), Fraction(8), Fraction(1), 2, 10)
    assignment: Assignment = place.assignment(name, plan)
    with attach(model, optimiser, cross_entropy, assignment, Options(service=place.service)) as run:
        for _ in run:
            pass


FINITE = "holds what is no finite number: seal it with `epsilon dataset seal`, which names the record"
BROKEN: dict[str, tuple[Rows, str]] = {
    "nan": (_spoilt("inputs", (699, 0), np.nan), FINITE),
    "bounds": (_spoilt("inputs", (699, 0), 121), "column age is not within its declared bounds"),
    "category": (_spoilt("inputs", (0, 1), 3), "column vaccine is none of its declared categories"),
    "target": (_spoilt("targets", 350, 2), "the target is none of its declared categories"),
    "persons": (_twice(), "has more than 1 record of one person, against its declaration"),
    "rows": (_rows(RECORDS + 1), f"has more than {RECORDS} records, which its provider declares at most"),
}


@pytest.mark.parametrize(
    ("fault", "run"),
    [*((fault, _statistics) for fault in BROKEN), ("category", _training)],
    ids=[*BROKEN, "category-training"],
)
def test_records_that_break_the_declaration_end_the_run(
    place: Place, fault: str, run: Callable[[Place, str], None]
) -> None:
    """By the partition's name and the column's, and what began stays charged: no answer leaves."""
    rows, words = BROKEN[fault]
    name = f"{fault}-{run.__name__.strip('_')}"
    _put(place, rows)
    with pytest.raises(Malformed, match=words) as raised:
        run(place, name)
    assert raised.value.field == place.ref
    charge = place.charge(name)
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, charge.steps)
    assert not (place.folder / "runs" / name / "model.safetensors").exists()


def test_a_number_that_is_none_ends_the_run_of_any_file(place: Place) -> None:
    """Whether something is declared or not, in frames or in one piece: none that this project seals has one."""
    rows = BROKEN["nan"][0]
    _put(place, rows, None)
    for name in ("frames", "piece"):
        with pytest.raises(Malformed, match=FINITE) as raised:
            _statistics(place, name)
        assert raised.value.field == place.ref
        charge = place.charge(name)
        assert charge is not None
        assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 1)
        place.put(inputs=rows["inputs"], targets=rows["targets"])


@pytest.mark.parametrize("declared", [DECLARED, None])
def test_records_that_keep_it_and_those_without_one_run(place: Place, declared: Declaration | None) -> None:
    """Without a declaration a finite number, whatever it is, ends no run, and two rows of a person neither."""
    _put(place, _rows() if declared else BROKEN["bounds"][0], declared)
    name = "kept" if declared else "undeclared"
    _statistics(place, name)
    charge = place.charge(name)
    assert charge is not None
    assert charge.steps_posted == 1


def test_a_plan_that_counts_categories_needs_them_declared(place: Place) -> None:
    """By the declaration, whatever the records hold: else another one would count as nothing, and no one be told."""
    counted = Categories(name="ill", epsilon=Fraction(1, 100), column="targets", values=(0, 1))
    plan = StatisticsPlan("REPLACE_SPECIAL", (counted,))
    for name, declared in (("listed", DECLARED), ("unlisted", None)):
        _put(place, _rows(), declared)
        assignment = replace(place.assignment(name), plan=plan)
        if declared:
            assert "ill" in run_statistics(assignment, place.service, lambda _: None).answers
            continue
        with pytest.raises(Malformed, match=r"declares no categories of the target .* private_categories") as raised:
            run_statistics(assignment, place.service, lambda _: None)
        assert raised.value.field == place.ref
        charge = place.charge(name)
        assert charge is not None
        assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 1)
        assert not (place.folder / "runs" / name / "model.safetensors").exists()


def test_tokens_that_are_declared_and_not_there_end_the_run(place: Place) -> None:
    """How many records a person has cannot be counted then."""
    rows = _rows()[["inputs", "targets"]]
    kinds = np.dtype([("inputs", "<f4", (2,)), ("targets", "<i8")])
    _put(place, rows.astype(kinds), DECLARED)
    with pytest.raises(Malformed, match="has no tokens of persons"):
        _statistics(place, "tokens")
