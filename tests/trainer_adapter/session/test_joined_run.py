"""A run over a join: three partitions charged together, joined in the room, and what is refused before the charge."""

from __future__ import annotations

import csv
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from api.demo import participants
from api.keys.data_key_store import FileKeyStore
from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import open_records, seal_dataset
from client.service.charged_stages import charged_stages
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.statistics import Categories, Count
from ledger.mechanisms.statistics_plans import JoinedTable, StatisticsPlan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.statistics.statistics_run import run_statistics
from trainer_adapter.training.attach import attach
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.run_options import Options

if TYPE_CHECKING:
    from tests.trainer_adapter.live_service import Place

PEOPLE = 500
PLAN = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 3, PEOPLE // 2)
TABLES = ("index", "laboratory", "clinic")


def _tables(folder: Path) -> dict[str, tuple[Path, RecordSchema]]:
    """Each table with other people missing, in another order; the target is the laboratory's."""
    order, found = np.random.default_rng(7), {}
    for place, name in enumerate(TABLES):
        people = [one for one in order.permutation(PEOPLE).tolist() if place == 0 or one % (place + 2)]
        path = folder / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("phone", "a", "ill"), *((9_000 + one, one % 7, one % 2) for one in people)])
        target = ("ill",) if name == "laboratory" else ()
        declared = {one: ColumnRule(categories=("0", "1")) for one in target}
        found[name] = path, RecordSchema(target=target, inputs=("a",), join=("phone",), declared=declared)
    return found


def _opened(place: Place, *, relation: str = "REPLACE_SPECIAL", twice: str = "") -> Assignment:
    """The three tables sealed, one perhaps with a person ``twice``; their partitions open; an assignment for them."""
    store, data = FileKeyStore(place.folder / "data-keys"), {}
    for name, (path, schema) in _tables(place.folder).items():
        ref = f"{place.tdp.did}/{participants.DATASET}/{name}"
        place.tdp.submit("partition", {**participants.partition(place.tdp, name, PEOPLE), "relation": relation})
        key = place.folder / f"{name}.key"
        key.write_bytes(store.create(place.tdp.did, f"{participants.DATASET}-{name}").reveal())
        key.chmod(0o600)
        if name == twice:
            path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
        records = open_records(
            path, replace(schema, join_rows_max=2 if name == twice else 1), place.folder / "join.key"
        )
        made = seal_dataset(records, ref, place.folder / f"{name}-sealed", key, None)
        data[ref] = made.folder / "share" / "records.sealed"
    return replace(place.assignment("joined-run", PLAN), data=data, join=tuple(data))


def _run(place: Place, assignment: Assignment) -> None:
    model = nn.Linear(3, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimiser, cross_entropy, assignment, Options(service=place.service)) as run:
        for _ in run:
            pass


def test_three_tables_are_charged_together_and_joined_in_the_room(tmp_path: Path) -> None:
    """One charge of three partitions; the steps are taken and posted; each partition's account has the loss."""
    with open_place(tmp_path / "place") as place:
        assignment = _opened(place)
        _run(place, assignment)
        charge = place.charge("joined-run")
        assert charge is not None
        assert sorted(charge.partitions) == sorted(assignment.data)
        assert charge.steps_posted == PLAN.steps


def test_statistics_of_a_join_are_of_its_rows(tmp_path: Path) -> None:
    """The size of the join, charged to each partition that it reads: those whom no table lacks."""
    with open_place(tmp_path / "place", mechanisms=["pure"]) as place:
        size = Count(name="size", epsilon=Fraction(2, 5))
        ill = Categories(name="ill", column="targets", values=(0, 1), epsilon=Fraction(2, 5))
        opened = _opened(place)
        tables = tuple(JoinedTable(("a",), ref, ref.endswith("laboratory")) for ref in opened.data)
        unsaid = replace(opened, plan=StatisticsPlan("REPLACE_SPECIAL", (size, ill)))
        wrong = replace(opened, plan=StatisticsPlan("REPLACE_SPECIAL", (size, ill), tables[::-1]))
        for refused in (unsaid, wrong):
            with pytest.raises(
                Malformed, match=r"train\.plan\.tables: must name the partitions of join in their order"
            ):
                run_statistics(refused, place.service, lambda _: None)
        assert place.charge("joined-run") is None
        assignment = replace(opened, plan=StatisticsPlan("REPLACE_SPECIAL", (size, ill), tables))
        report = run_statistics(assignment, place.service, lambda _: None)
        everywhere = [one for one in range(PEOPLE) if one % 3 and one % 4]
        # A Laplace number of scale 2.5 passes 63 with probability e^-25.
        assert abs(float(report.answers["size"]) - len(everywhere)) < 63
        assert abs(float(report.answers["ill"].split(", ")[1]) - sum(one % 2 for one in everywhere)) < 63
        charge = place.charge("joined-run")
        assert charge is not None
        assert sorted(charge.partitions) == sorted(assignment.data)
        assert {line.partition for line in report.privacy.run_epsilon} == set(assignment.data)
        stages: Any = charged_stages(place.service, "joined-run")["stages"]
        laboratory = next(ref for ref in assignment.data if ref.endswith("laboratory"))
        assert [one["sources"] for one in stages] == [
            [],
            [{"column": "targets", "name": "targets", "partition": laboratory}],
        ]


def test_tables_of_other_columns_or_more_rows_than_were_charged_end_the_run(tmp_path: Path) -> None:
    """A provider that sealed others, or more rows than were declared, is named; the run counts."""
    with open_place(tmp_path / "place", mechanisms=["pure"]) as place:
        opened = _opened(place)
        columns = [JoinedTable(("b",), ref, ref.endswith("laboratory")) for ref in opened.data]
        targets = [JoinedTable(("a",), ref, ref.endswith("index")) for ref in opened.data]
        longer = [JoinedTable(("a",), ref, ref.endswith("laboratory"), PEOPLE - 1) for ref in opened.data]
        for number, named in enumerate((columns, targets, longer)):
            plan = StatisticsPlan("REPLACE_SPECIAL", (Count(name="n", epsilon=Fraction(1, 10)),), tuple(named))
            output = opened.output.parent / f"other-{number}"
            assignment = replace(opened, plan=plan, id=f"other-{number}", output=output)
            rule = ("has other columns than", "has the target where", f"than declared, .* have {PEOPLE - 1}$")[number]
            with pytest.raises(Malformed, match=rule):
                run_statistics(assignment, place.service, lambda _: None)
            charge = place.charge(f"other-{number}")
            assert charge is not None
            assert charge.steps_posted == 1


def test_a_table_with_two_rows_of_a_person_ends_the_run_which_is_charged(tmp_path: Path) -> None:
    """Its provider declares that a person may have two, and the charge is for one: what was begun is posted."""
    with open_place(tmp_path / "place") as place:
        assignment = _opened(place, twice="clinic")
        with pytest.raises(Malformed, match=r"/clinic: declares up to 2 records of one person, and the join takes 1"):
            _run(place, assignment)
        charge = place.charge("joined-run")
        assert charge is not None
        assert charge.steps_posted == PLAN.steps


def test_a_join_that_no_charge_covers_is_refused_before_it(tmp_path: Path) -> None:
    """A relation under which a record changes two joined ones; a list that is not the data's; nothing is charged."""
    with open_place(tmp_path / "place") as place:
        place.republish(relation="REPLACE_ONE")
        assignment = _opened(place, relation="REPLACE_ONE")
        with pytest.raises(Malformed, match=r"join: is not for .*its relation is REPLACE_ONE"):
            _run(place, assignment)
        with pytest.raises(Malformed, match="join: must name each partition of data once"):
            replace(assignment, join=assignment.join[:2] if assignment.join else None)
        assert place.charge("joined-run") is None
