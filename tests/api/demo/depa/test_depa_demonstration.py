"""DEPA's COVID scenario: from its papers and raw files to one charge, a private AUC, and what an auditor sees of it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from safetensors.numpy import load

import migrations
from api.demo.depa import papers, parties, plans, preparation, raw_files
from api.demo.depa.__main__ import play
from api.demo.depa.scene import AREA, RUN, SCALE, Scene
from api.demo.stage import ORIGIN, open_stage, prepare
from api.keys.data_key_store import FileKeyStore
from client.cli.model import print_stages
from client.dataset_files.stored_partition import StoredPartition
from client.http.problems import Refused
from client.keys.signer import Signer, load_private
from client.service.charged_stages import charged_stages
from ledger.accounting.epsilon_report import report_epsilon
from ledger.book.book import Book
from ledger.book.wall_clock import unix_ms
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.statistic_prices import noise_of
from ledger.mechanisms.statistics import AreaUnderCurve
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.store.engine import url_of
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.statistics.answers import figures, pairs_error
from trainer_adapter.statistics.exact_totals import exact_totals
from trainer_adapter.statistics.held_out import held_out
from trainer_adapter.training.record_join import join_records


@contextmanager
def scene(folder: Path, level: int = 1) -> Iterator[tuple[Scene, Book]]:
    """A scene on a service of its own, nothing played yet."""
    prepare(folder)
    Signer.generate().save(folder / "log.pem")
    log_key = load_private(folder / "log.pem")
    log = LogKey(ORIGIN, log_key.public_key().public_bytes_raw())
    url, keys = url_of(folder / "book.sqlite"), FileKeyStore(folder / "data-keys")
    migrations.upgrade(url)
    book = Book.open(url, gate=gate, log_key=log_key, origin=ORIGIN, clock=unix_ms, statements=False)
    try:
        with open_stage(book, keys, log) as (address, enrol):
            quiet = Console(file=io.StringIO())
            yield Scene(folder, address, enrol, keys, quiet, unix_ms() // 1000 * 1000, level), book
    finally:
        book.close()


def test_the_run_costs_what_its_plan_says_and_its_auc_is_near_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DEPA's pair is adapted and signed by all; one charge of three partitions; an auditor sees each stage of it."""
    with scene(tmp_path / "covid") as (played, book):
        job = Job.load(played.ready())
        some = [*played.parties.tdps.values()][:2]
        with pytest.raises(Refused, match=r"did:web:index-data\.demo\.invalid has not signed"):
            played.parties.tdc.enter("contract", {**played.document, "id": "signed-by-half"}, *some)
        service = played.parties.tdc.service
        report = train_job(job, service, lambda _: None)
        with book.read() as facts:
            charge = facts.charges[RUN]
        plan = StagedPlan.of(job.plan)
        mine = {name: played.parties.reference(name, "covid") for name in raw_files.NAMES}
        assert plan == plans.staged(played.training, SCALE, AREA, mine)
        assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, plan.steps)
        assert sorted(charge.partitions) == sorted(job.data)
        wanted = report_epsilon(plan.whole, Fraction(1, 1483), "REPLACE_SPECIAL").epsilon
        assert {line.epsilon for line in report.privacy.run_epsilon} == {wanted}
        answers = report.answers or {}
        error = float(answers["roc.auc_error"])
        # About 440 and 190 people at ε 0.3.
        assert error < 0.15
        _check_error(plan, float(answers["roc.auc"]), *_scores(played, job))
        shown = charged_stages(played.parties.auditor.service, RUN)
        _check_audit(shown, job, wanted)
        print_stages(shown)
        reported = capsys.readouterr().out
        assert reported.count("All together, composed once: ") == 3
        assert "statistic" in reported
        assert "metric" in reported
        assert "(age)" in reported


@dataclass(frozen=True)
class HeldOut:
    """Targets and scores of the records that a model is measured on."""

    targets: NDArray[np.float64]
    scores: NDArray[np.float64]

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.targets)

    def values(self, column: str) -> NDArray[np.float64]:
        """One of both."""
        return {"outputs[1]": self.scores, "targets": self.targets}[column]


def _check_error(plan: StagedPlan, released: float, targets: NDArray[Any], scores: NDArray[Any]) -> None:
    """The stated error of these records and this model holds in 95 of 100 draws of the noise, and what left is a draw.

    One draw may be beyond its stated error; beyond three times the worst of four thousand is none.
    """
    positive, negative = scores[targets == 1], scores[targets == 0]
    exact = float((positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2)
    (metric,) = plan.metrics
    assert isinstance(metric, AreaUnderCurve)
    scale = noise_of(metric, "REPLACE_SPECIAL").laplace
    assert scale is not None
    totals = exact_totals(metric, HeldOut(targets.astype(np.float64), scores.astype(np.float64)))
    drawn, ratio = np.random.default_rng(18), 1 - np.exp(-1 / float(scale))
    far, inside = list[float](), 0
    for _ in range(4_000):
        noisy = totals + drawn.geometric(ratio, 3) - drawn.geometric(ratio, 3)
        far.append(abs(float(figures(metric, noisy)["roc.auc"][0]) - exact))
        inside += far[-1] <= pairs_error(metric, noisy, 2 * float(scale) ** 2)
    assert inside >= 0.95 * len(far)
    assert abs(released - exact) <= 3 * max(far)


def _scores(played: Scene, job: Job) -> tuple[NDArray[Any], NDArray[Any]]:
    """Targets and scores of the held-out records, of the released model standardised as its file says."""
    keys = {
        ref: (played.folder / "data" / f"{name}.key").read_bytes()
        for ref, name in zip(job.data, raw_files.NAMES, strict=True)
    }
    stored = {ref: StoredPartition(path).open(keys[ref], ref) for ref, path in job.data.items()}
    archive, present = join_records(stored, list(job.data))
    data = (job.output / "model.safetensors").read_bytes()
    weights = {name: torch.from_numpy(value) for name, value in load(data).items()}
    length = int.from_bytes(data[:8], "little")
    said = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["answers"])
    out = held_out({next(iter(job.data)): archive}, Fraction(3, 10)) & present
    with np.load(io.BytesIO(archive)) as held:
        inputs, targets = torch.from_numpy(held["inputs"])[out], held["targets"][out.numpy()]
    assert inputs.shape[1] == 9
    half = torch.tensor([25, 0.5, 0.5, 50, 0.5, 0.5, 0.5, 0.5, 50])
    deviation = torch.maximum(torch.tensor(said["scale.deviation"]), half / 8)
    seen = (inputs - torch.tensor(said["scale.mean"])) / deviation
    scores = torch.softmax(seen.float() @ weights["1.weight"].T + weights["1.bias"], dim=1)[:, 1].numpy()
    return targets, scores


def _check_audit(shown: Any, job: Job, whole: Fraction) -> None:  # noqa: ANN401 - JSON
    """Three stages, each of all three providers' data, each at less than the whole and together at least that."""
    assert [(one["stage"], one["name"], one["began"]) for one in shown["stages"]] == [
        ("statistic", "scale", True),
        ("training", "", True),
        ("metric", "roc", True),
    ]
    assert shown["stages"][0]["columns"] == [f"inputs[{place}]" for place in range(9)]
    assert shown["stages"][2]["columns"] == ["targets", "outputs[1]"]
    icmr, cowin, _ = job.data
    sources = {one["column"]: (one["partition"], one["name"]) for one in shown["stages"][0]["sources"]}
    assert (len(sources), sources["inputs[0]"], sources["inputs[3]"]) == (9, (icmr, "a_test_ct_value"), (cowin, "age"))
    assert shown["stages"][2]["sources"] == [{"column": "targets", "name": "targets", "partition": icmr}]
    for ref in job.data:
        alone = [
            Fraction(price["epsilon"]) for one in shown["stages"] for price in one["of"] if price["partition"] == ref
        ]
        assert all(one < whole for one in alone)
        assert sum(alone) > whole - Fraction(1, 100)
    assert shown["model"]


def test_made_up_files_have_the_columns_and_kinds(tmp_path: Path) -> None:
    """As many cells a row as names, one row a person in each, and what the model looks at within its bounds."""
    found = raw_files.made_up(tmp_path, 60, Random(1))  # noqa: S311 - nobody's data
    phones = []
    for name, path in found.items():
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, strict=True))
        assert len(rows) == 60
        assert all(None not in row and None not in row.values() for row in rows)
        column = {"icmr": "icmr_patient_mobilenumber", "cowin": "cowin_registered_mobile", "index": "pcnumber"}[name]
        phones.append({row[column] for row in rows})
    assert phones[0] == phones[1] == phones[2]
    assert len(phones[0]) == 60


def test_a_named_folder_is_taken_or_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was made up says so."""
    monkeypatch.delenv(raw_files.FOLDER_VARIABLE, raising=False)
    own = raw_files.made_up(tmp_path, 5, Random(1))  # noqa: S311 - nobody's data
    (tmp_path / "else").mkdir()
    assert "made up" in raw_files.raw_files(tmp_path / "else", 5)[1]
    monkeypatch.setenv(raw_files.FOLDER_VARIABLE, str(tmp_path))
    found, reported = raw_files.raw_files(tmp_path / "else")
    assert (found, str(tmp_path) in reported) == (own, True)
    own["cowin"].unlink()
    with pytest.raises(FileNotFoundError, match=r"has no cowin\.csv"):
        raw_files.raw_files(tmp_path / "else")


Rows = list[list[str]]
SPOILT: dict[str, tuple[str, Callable[[Rows], Rows]]] = {
    "a person twice": ("is of a person that another record has", lambda rows: [*rows, rows[1]]),
    "no column": ("names the column pasymp, which the table lacks", lambda rows: [_renamed(rows[0]), *rows[1:]]),
    "an undeclared category": (
        "column pasymp of record 1 is none of its declared categories",
        lambda rows: [rows[0], [cell if at != 18 else "2" for at, cell in enumerate(rows[1])], *rows[2:]],
    ),
    "an undeclared age": (
        "column page of record 20 is not within its declared bounds",
        lambda rows: [*rows[:-1], [cell if at != 22 else "101" for at, cell in enumerate(rows[-1])]],
    ),
    "no number": (
        "record 1",
        lambda rows: [rows[0], [cell if at != 18 else "nan" for at, cell in enumerate(rows[1])], *rows[2:]],
    ),
}


def _renamed(head: list[str]) -> list[str]:
    return ["other" if one == "pasymp" else one for one in head]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_table_that_breaks_the_terms_is_not_sealed(tmp_path: Path, spoilt: str) -> None:
    """On the provider's machine, by name, before anything is charged."""
    words, change = SPOILT[spoilt]
    with scene(tmp_path / "covid") as (played, _):
        played._register()  # noqa: SLF001 - the first step alone
        raw = raw_files.made_up(tmp_path, 20, Random(1))  # noqa: S311 - nobody's data
        with raw["index"].open(newline="", encoding="utf-8") as file:
            rows = change(list(csv.reader(file)))
        with raw["index"].open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        with pytest.raises(Malformed, match=words):
            preparation.seal_tables(played.parties, played.keys, raw, tmp_path / "covid" / "data", "covid")
        assert not (tmp_path / "covid" / "data" / "index").exists()


@pytest.mark.soak
def test_the_adapted_pair_runs_by_two_commands(tmp_path: Path) -> None:
    """``epsilon depa adapt`` writes the job; once all signed and the contract is entered, ``epsilon train`` runs it."""
    folder = tmp_path / "covid"
    with scene(folder) as (played, book):
        template = folder / "template.toml"
        played.sealed()
        template.write_bytes(played.template())
        contract, pipeline, _ = papers.papers()
        (folder / "raw-contract.json").write_bytes(contract)
        (folder / "raw-pipeline.json").write_bytes(pipeline)
        options = ["--into", str(folder / "new"), "--records", str(parties.RECORDS), "--rows-per-principal", "1"]
        options += ["--lower-noise", "--tdc", played.parties.tdc.did, "--job", str(template)]
        options += [f"--tdp={name}={tdp.did}" for name, tdp in played.parties.tdps.items()]
        starts, ends = (format_time(moment) for moment in parties.dates(played.now))
        options += ["--starts", starts, "--ends", ends]
        _epsilon("depa", "adapt", str(folder / "raw-contract.json"), str(folder / "raw-pipeline.json"), *options)
        data = (folder / "new" / "document.json").read_bytes()
        document = c.members(c.parse(data, len(data), "contract"), "contract")
        digest, _ = played.parties.tdc.enter("contract", document, *played.parties.tdps.values())
        job = folder / "new" / "job.toml"
        _epsilon("train", str(job))
        with book.read() as facts:
            charge = facts.charges[RUN]
        assert (charge.state, charge.contract) == (ChargeState.POSTED, digest)
        assert sorted(charge.partitions) == sorted(played.parties.reference(name, "covid") for name in raw_files.NAMES)


def _epsilon(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "epsilon_ledger", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("level", [1, 2])
def test_the_whole_scenario_is_played_and_verified(tmp_path: Path, level: int) -> None:
    """By processes of its own: thirteen runs of training alone under two rules, ten with all stages under one."""
    played = play(tmp_path / "demo", Console(file=io.StringIO()), level)
    assert played.run is not None
    assert played.run.report is not None
    assert bool(played.run.report["model"]) == bool(played.run.report["answers"]) == (level == 1)
    counted = {(reported.partition(" ")[0], found.rule): found for reported, found in played.counted}
    runs = {name: found.runs for name, found in counted.items()}
    assert (runs["training", "reference"], runs["training", "catalogue"], runs["training", "renyi"]) == (13, 13, 6)
    assert (runs["statistics", "reference"], runs["statistics", "catalogue"], runs["statistics", "renyi"]) == (0, 10, 5)
    assert "has no proven price in the rule reference" in counted["statistics", "reference"].why
