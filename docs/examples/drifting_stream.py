#!/usr/bin/env python3
"""Trains on a stream whose records drift, and draws budget and accuracy over time.

    python docs/examples/drifting_stream.py FOLDER [--weeks 26] [--window 4] [--every 2]

A hospital opens a slice a week by the code of `epsilon dataset advance`; slices older than eight weeks retire. A bank
trains on the newest slices every few weeks. All parties run in this process, with a real service on this machine whose
clock is moved from week to week. FOLDER gets weeks.json, every number, and drifting_stream.svg, drawn from them.

The table is made from SEED. The sampling and the noise of training are not: they come from the operating system.
"""

import argparse
import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

import migrations
from drifting_stream_picture import draw
from api.demo.participants import ATTESTER, Organisation, contract, dataset, policy
from api.demo.stage import ORIGIN, open_stage
from api.keys.data_key_store import FileKeyStore
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import open_records
from client.dataset_files.stream_advance import Advanced, StreamAdvance
from client.http.problems import Refused
from client.keys.signer import Signer, load_private
from ledger.accounting.calibration import calibrate_noise
from ledger.book.book import Book
from ledger.domain.outcomes import Code
from ledger.files.atomic_file import create_file
from ledger.mechanisms.plan import Plan
from ledger.store.engine import url_of
from ledger.verifier import LogKey
from policy.decisions.gate import gate
from trainer_adapter.job.job_spec import Assignment, Attester
from trainer_adapter.training.attach import attach
from trainer_adapter.training.run_options import Options

SEED = 21
DATASET = "visits"
COLUMNS, RECORDS, TESTS = 8, 1_000, 4_000
TURN = math.radians(6)
"""By this angle the boundary between the two classes turns each week."""
LIFE_WEEKS = 8
EPSILON, DELTA, RUN_EPSILON, STEPS = "2", "0.0001", Fraction(1), 60
MONDAY_MS = 1_767_596_400_000
"""Monday, 5 January 2026, 07:00 UTC: the first slice that opens is of the week before."""
DAY_MS = 86_400_000


def records(week: int, count: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """``count`` records of a week, inputs (count, COLUMNS) and classes (count,); ``stream`` separates the draws."""
    random = np.random.default_rng((SEED, week, stream))
    inputs = random.normal(size=(count, COLUMNS)).astype(np.float32)
    boundary = math.cos(week * TURN) * inputs[:, 0] + math.sin(week * TURN) * inputs[:, 1]
    return inputs, (boundary + 0.3 * random.normal(size=count) > 0).astype(np.int64)


@dataclass
class Clock:
    """The time of service and parties, in Unix milliseconds; moved by hand."""

    now: int = MONDAY_MS

    def __call__(self) -> int:
        return self.now


@dataclass
class Week:
    """What was seen at the end of one week; ``spent`` is the share of each open slice's budget, in per cent."""

    week: int
    period: str
    runs_left: int | None
    spent: dict[str, float]
    retired: list[str]
    trained: bool = False
    refused: str = ""
    renewed: float | None = None
    once: float | None = None


@dataclass
class Parties:
    """The three parties, their folder and their service."""

    folder: Path
    clock: Clock
    keys: FileKeyStore
    address: Any
    enrol: Any
    plan: Plan
    window: int
    runs: int = 0
    parties: list[Organisation] = field(default_factory=list)

    def found(self) -> None:
        """Register every party, and enter policy, dataset, stream and contract."""
        attester, now = Signer.generate(), self.clock.now
        attester.save(self.folder / "attester.pem")
        for slug, role in (("council", "SRO"), ("hospital", "TDP"), ("bank", "TDC")):
            self.parties.append(Organisation.create(self.folder, slug, slug, role, self.enrol))
        self.sro, self.hospital, self.bank = self.parties
        for one in self.parties:
            one.register(self.sro)
        self.sro.enter("policy", policy(self.sro, attester.jwk, now))
        described = {
            "id": DATASET,
            "deidentification": "made up",
            "schema": f"{COLUMNS} numbers and a class",
            "membership": "the slice of the week in which the patient came first",
        }
        self.hospital.enter("dataset", {**dataset(self.hospital), **described})
        self.hospital.enter(
            "stream",
            {
                "kind": "stream",
                "v": 1,
                "version": 1,
                "provider": self.hospital.did,
                "dataset": DATASET,
                "period": "week",
                "budget": {"epsilon": EPSILON, "delta": DELTA},
                "rule": "renyi",
                "relation": "REPLACE_SPECIAL",
                "unit": "record",
                "records_min": RECORDS,
                "life_days": 7 * LIFE_WEEKS - 1,
                "window_max": self.window,
                "appearances_max": 1,
                "persons": "committed",
            },
        )
        terms = {
            "id": "visits-bank",
            "datasets": [{"dataset": DATASET, "provider": self.hospital.did}],
            "purpose": "telling the classes apart",
            "runs_max": 1_000,
        }
        document = {**contract(self.hospital, self.bank, now), **terms}
        document["ends"] = "2027-12-31T00:00:00Z"
        self.contract, _ = self.bank.enter("contract", document, self.hospital)

    def advance(self, week: int) -> Advanced:
        """What `epsilon dataset advance` does: the week's file is sealed, its slice opens, and old ones retire."""
        file = self.folder / "files" / f"{week}.npz"
        file.parent.mkdir(exist_ok=True)
        inputs, targets = records(week, RECORDS, 0)
        np.savez(file, inputs=inputs, targets=targets, patients=np.arange(RECORDS) + week * RECORDS)
        run = StreamAdvance(
            self.hospital.service, self.hospital.signer, self.hospital.did, DATASET, self.folder / "slices"
        )
        done = run.advance(file, lambda: open_records(file, RecordSchema(person=("patients",))))
        store = self.folder / "data-keys" / self.hospital.did
        store.mkdir(mode=0o700, exist_ok=True)
        create_file(store / f"{DATASET}-{done.period}", (done.folder / "secret" / "data.key").read_bytes())
        return done

    def stream(self) -> Any:
        """What `epsilon stream show` shows the hospital."""
        return self.hospital.service.stream(self.hospital.did, DATASET)

    def train(self) -> torch.nn.Module:
        """A fresh model on the newest slices; charged before the first step. Raises: Refused."""
        self.runs += 1
        known = Assignment(
            id=f"run-{self.runs}",
            service=self.address.service,
            issuer=self.address.issuer,
            log=self.address.log,
            actor=self.bank.did,
            key=self.folder / "bank.pem",
            contract=self.contract,
            deadline_s=3_600,
            block_steps=STEPS,
            output=self.folder / "runs" / f"run-{self.runs}",
            attester=Attester(ATTESTER, self.folder / "attester.pem"),
            plan=self.plan,
            data={f"{self.hospital.did}/{DATASET}[last {self.window}]": self.folder / "slices"},
        )
        torch.manual_seed(SEED)
        model = torch.nn.Linear(COLUMNS, 2)
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        loss = torch.nn.functional.cross_entropy
        with attach(model, optimiser, loss, known, Options(service=self.bank.service)) as run:
            for _ in run:
                pass
        if not run.release():
            raise RuntimeError("the model was not released")
        return model


def accuracy(model: torch.nn.Module | None, week: int) -> float | None:
    """The share of right answers on a public draw of the week, which is in no slice; None without a model."""
    if model is None:
        return None
    inputs, targets = records(week, TESTS, 1)
    with torch.no_grad():
        return float((model(torch.from_numpy(inputs)).argmax(1).numpy() == targets).mean())


def weeks_of(parties: Parties, count: int, every: int) -> list[Week]:
    """Let the weeks pass, and print a line of each."""
    once: torch.nn.Module | None = None
    newest: torch.nn.Module | None = None
    seen = []
    for week in range(count):
        done = parties.advance(week)
        trained, refused = False, ""
        if week + 1 >= parties.window and (week + 1 - parties.window) % every == 0:
            try:
                newest = parties.train()
                once, trained = once or newest, True
            except Refused as error:
                if error.code != Code.BUDGET_EXHAUSTED.word:
                    raise
                refused = error.detail.partition(";")[0]
        shown = parties.stream()
        spent = {
            one["period"]: float(one["spent"].removesuffix(" %"))
            for one in shown["slices"]
            if one["status"] in ("open", "full")
        }
        retired = [ref.rpartition("/")[2] for ref in done.retired]
        row = Week(week, done.period, shown["newest_window"]["runs"], spent, retired, trained, refused)
        row.renewed, row.once = accuracy(newest, week), accuracy(once, week)
        seen.append(row)
        print(_line(row), flush=True)
        parties.clock.now += 7 * DAY_MS
    return seen


def _line(row: Week) -> str:
    parts = [
        f"{row.period}: slices open: {len(row.spent)}, the most used at {max(row.spent.values(), default=0):.1f} %"
    ]
    if row.retired:
        parts.append(f"{', '.join(row.retired)} retired")
    if row.trained:
        parts.append("trained")
    if row.refused:
        parts.append(f"refused: {row.refused}")
    if row.renewed is not None and row.once is not None:
        parts.append(f"right: {row.renewed:.1%} renewed, {row.once:.1%} trained once")
    return "; ".join(parts)


def main(words: list[str] | None = None) -> list[Week]:
    """Run it; what was seen each week."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="is made; a folder that is there is refused")
    parser.add_argument("--weeks", type=int, default=26)
    parser.add_argument("--window", type=int, default=4, help="slices of one run")
    parser.add_argument("--every", type=int, default=2, help="weeks from one run to the next")
    arguments = parser.parse_args(words)
    arguments.folder.mkdir()
    folder, clock, log_key = arguments.folder.resolve(), Clock(), Signer.generate()
    log_key.save(folder / "log.pem")
    private = load_private(folder / "log.pem")
    log = LogKey(ORIGIN, private.public_key().public_bytes_raw())
    (folder / "log.vkey").write_text(f"{log.vkey}\n", encoding="ascii")
    probability, batch = Fraction(1, 10), arguments.window * RECORDS // 10
    noise = calibrate_noise(probability, STEPS, RUN_EPSILON, Fraction(DELTA))
    plan = Plan(probability, noise, Fraction(1), STEPS, batch)
    database = url_of(folder / "book.sqlite")
    migrations.upgrade(database)
    keys = FileKeyStore(folder / "data-keys")
    book = Book.open(database, gate=gate, log_key=private, origin=ORIGIN, clock=clock, statements=False)
    try:
        with open_stage(book, keys, log, clock) as (address, enrol):
            parties = Parties(folder, clock, keys, address, enrol, plan, arguments.window)
            parties.found()
            rows = weeks_of(parties, arguments.weeks, arguments.every)
    finally:
        book.close()
    weeks, svg = folder / "weeks.json", folder / "drifting_stream.svg"
    weeks.write_text(json.dumps([vars(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    draw(weeks, svg)
    print(f"{svg} is the picture\nepsilon verify {folder / 'book.sqlite'} --log {folder / 'log.vkey'} checks the book")
    return rows


if __name__ == "__main__":
    main()
