"""A job that names a range trains on all its slices, with one charge, one key release and one post for all of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

import pytest

from api.demo import digits, participants
from api.keys.data_key_store import FileKeyStore
from client.keys.data_encryption import encrypt
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.job.job_spec import Job
from trainer_adapter.session.protocol import Session
from trainer_adapter.session.slice_files import SEALED, with_slices

NAMES = ("2026-q3", "2026-q4", "2027-q1")
PLAN = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 4, 3 * digits.RECORDS // 2)


def test_a_job_over_three_slices(tmp_path: Path) -> None:
    """The run is charged to all of them, trains on all their records, and is resumed on the same ones."""
    with open_place(tmp_path) as place:
        dataset, store = place.ref.rpartition("/")[0], FileKeyStore(tmp_path / "data-keys")
        for name in NAMES:
            ref, key = f"{dataset}/{name}", place.data_key
            if ref != place.ref:
                place.tdp.submit("partition", participants.partition(place.tdp, name, digits.RECORDS))
                key = store.create(place.tdp.did, f"{participants.DATASET}-{name}").reveal()
            sealed = tmp_path / "data" / "slices" / name / "share" / "records.sealed"
            sealed.parent.mkdir(parents=True)
            sealed.write_bytes(encrypt(key, ref, digits.archive(digits.FIRST)))
        job = place.job("run-1", PLAN)
        whole = job.read_text()
        job.write_text(whole.replace(place.ref, f"{dataset}[last 3]").replace("2026-q3.sealed", "slices"))
        report = place.run(job)
        assert report.steps == PLAN.steps
        charge = place.charge("run-1")
        assert charge is not None
        assert charge.partitions == tuple(f"{dataset}/{name}" for name in NAMES)
        assert (charge.state, charge.steps_posted, charge.groups) == (ChargeState.POSTED, PLAN.steps, ((0, 3),))
        assert [kind for kind, _ in place.kinds()].count("key_release") == 1
        with place.book.read() as facts:
            losses = {facts.accounts[ref, "global"].posted for ref in charge.partitions}
        assert len(losses) == 1
        # A slice that opens meanwhile is none of the run's that is resumed.
        place.tdp.submit("partition", participants.partition(place.tdp, "2027-q2", digits.RECORDS))
        again = with_slices(Job.load(job), place.service)
        assert tuple(again.data) == charge.partitions
        assert again.ranges == ({"dataset": dataset, "first": NAMES[0], "last": NAMES[-1]},)
        other = with_slices(replace(Job.load(job), id="run-2"), place.service)
        assert [one.rpartition("/")[2] for one in other.data] == [*NAMES[1:], "2027-q2"]


CASES: Final[dict[str, tuple[tuple[str, ...], tuple[int, ...]]]] = {
    "retired": (("[last 4]",), (0, 1, 2, 3)),
    "two-ranges": (("[last 1]", "[2026-q3..2026-q4]"), (3, 0, 1)),
    "range-and-listed": (("[2026-q3..2026-q4]", "/2027-q2", "[2027-q1..2027-q1]"), (3, 0, 1, 2)),
    "listed-retires": (("/2026-q3", "[last 2]"), (0, 2, 3)),
}
"""Runs by id: what a job names of the dataset, and the slices that are charged, by number in order of opening."""


def test_a_resumed_run_has_the_slices_of_its_charge(tmp_path: Path) -> None:
    """Slices retired and opened meanwhile: the charge that is sent again is the same, and each slice has its file."""
    with open_place(tmp_path) as place:
        dataset, names = place.ref.rpartition("/")[0], [*NAMES, "2027-q2"]
        for name in names[1:]:
            place.tdp.submit("partition", participants.partition(place.tdp, name, digits.RECORDS))
        job, folder = Job.load(place.job("run-1", PLAN)), tmp_path / "data" / "slices"
        for name in names:
            sealed = folder / name / "share" / "records.sealed"
            sealed.parent.mkdir(parents=True)
            sealed.write_bytes(place.sealed.read_bytes())
        known, sent = dict[str, Job](), {}
        for run, (named, charged) in CASES.items():
            files = {f"{dataset}{one}": folder / one[1:] / SEALED if one[0] == "/" else folder for one in named}
            known[run] = replace(job, id=run, data=files)
            session = Session(known[run], place.service, lambda _: None)
            sent[run] = with_slices(known[run], place.service), session, session.charge()
            charge = place.charge(run)
            assert charge is not None
            assert charge.partitions == tuple(f"{dataset}/{names[number]}" for number in charged)
        for name in (names[0], names[3]):
            place.tdp.submit("retirement", {"partition": f"{dataset}/{name}"})
        place.tdp.submit("partition", participants.partition(place.tdp, "2027-q3", digits.RECORDS))
        for run, (first, session, answer) in sent.items():
            assert with_slices(known[run], place.service) == first
            assert {*first.data} == {f"{dataset}/{names[number]}" for number in CASES[run][1]}
            again = Session(known[run], place.service, lambda _: None, session.identity).charge()
            assert (again.index, again.outcome) == (answer.index, "pending")
            for other in ({f"{dataset}[last 1]": folder}, {**known[run].data, f"{dataset}[2026-q4..2027-q2]": folder}):
                with pytest.raises(Malformed, match=f"other partitions than the charge {run} has"):
                    with_slices(replace(known[run], data=other), place.service)
        with pytest.raises(Malformed, match="has 3 open partitions"):
            with_slices(replace(known["retired"], id="run-2"), place.service)
