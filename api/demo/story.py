"""The story: six chapters, each of them through the service, the trainer's process or the command line."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from api.demo import digits, participants, tumours
from api.demo.heartbeat import heartbeat
from api.demo.participants import Enrol, Organisation
from api.demo.sealed_answers import NOISE, QUESTIONS, TEACHERS, ask_sealed, write_ensemble_job
from api.demo.sealed_archive import sealed_archive
from api.demo.trainer import Address, Run, Task, train, write_job
from api.keys.data_key_store import FileKeyStore
from client.dataset_files.record_commitments import RecordCommitments, read_or_make_key
from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.accounting.calibration import calibrate_noise
from ledger.accounts.run_epsilon import RunEpsilon
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, parse_number
from ledger.wire.records import convert

STEPS: Final = 60
PROBABILITY: Final = Fraction(1, 2)
RUN_EPSILON: Final = Fraction(2)
_DELTA: Final = parse_number(participants.DELTA, "delta")
RUNS_MAX: Final = 12
"""Far more than fit, so that the story ends even if a rule were wrong."""


class Story:
    """The demonstration, on a running service."""

    def __init__(self, folder: Path, address: Address, enrol: Enrol, keys: FileKeyStore, console: Console) -> None:
        """Show it on ``console``; leave what it makes in ``folder``."""
        self._folder, self._address, self._enrol = folder, address, enrol
        self._keys, self._console = keys, console
        self._runs: list[Run] = []

    def begin(self, now: int) -> None:
        """Chapter 1: a policy, a data set, a partition with a budget."""
        self._chapter(1, "A policy, a data set, a budget")
        self._now = now
        attester = Signer.generate()
        attester.save(self._folder / "keys" / "attester.pem")
        self._sro = self._create("health-council", "Health Data Council", "SRO")
        self._tdp = self._create("lotus-hospital", "Lotus Hospital", "TDP")
        names = (("banyan-bank", "Banyan Bank"), ("cedar-bank", "Cedar Bank"))
        self._banks = [self._create(slug, name, "TDC") for slug, name in names]
        for participant in (self._sro, self._tdp, *self._banks):
            participant.register(self._sro)
        self._policy = participants.policy(self._sro, attester.jwk, now)
        _, answer = self._sro.enter("policy", self._policy)
        self._print(
            f"{self._sro.name} (SRO) publishes a signed Level 1 policy: one renewable budget for all, at most "
            f"ε 4.5 for each lineage, entry {answer.index}"
        )
        _, answer = self._tdp.enter("dataset", participants.dataset(self._tdp))
        self._print(f"{self._tdp.name} (TDP) registers its data set of handwritten digits, entry {answer.index}")
        (self._folder / "data" / "test.npz").write_bytes(digits.archive(digits.TEST))
        self._first = self._open_digits("2026-q3", digits.FIRST)

    def _create(self, slug: str, name: str, role: str) -> Organisation:
        return Organisation.create(self._folder / "keys", slug, name, role, self._enrol)

    def _open_digits(self, name: str, part: slice) -> str:
        body = participants.partition(self._tdp, name, digits.RECORDS)
        archive = digits.archive(part), digits.CLASSES
        return self._open_partition(body, f"{name}.sealed", archive, digits.identities(part))

    def _open_partition(self, body: c.Object, file: str, archive: tuple[bytes, int], identities: list[bytes]) -> str:
        """The archive with how many classes its targets are."""
        ref = f"{self._tdp.did}/{body['dataset']}/{body['partition']}"
        data_key = self._keys.create(self._tdp.did, str(body["data_key"]))
        (self._folder / "data" / file).write_bytes(sealed_archive(archive[0], data_key.reveal(), ref, archive[1]))
        answer = self._tdp.submit("partition", body | {"commitments": self._commit(identities)})
        terms: Any = answer.body["terms"]
        orders = ", ".join(map(str, terms["orders"]))
        self._print(
            f"partition {body['partition']}: {body['records']} records, committed to, encrypted at rest; budget "
            f"ε {participants.EPSILON} at δ {participants.DELTA}, rule renyi at orders {orders}, entry {answer.index}"
        )
        return ref

    def _commit(self, identities: list[bytes]) -> list[c.Json]:
        """The provider's commitments to its records, by which none of them comes back in a later partition."""
        key, _ = read_or_make_key(self._folder / "keys" / "commitments.key", "commitments")
        made = RecordCommitments(key)
        made.add(identities)
        return [self._tdp.service.put_document(self._tdp.signer, document).document for document in made.documents()]

    def contracts(self) -> None:
        """Chapter 2: contracts, and the first run, which stops early."""
        self._chapter(2, "Two contracts and a first model")
        self._contracts = {}
        for bank in self._banks:
            document = participants.contract(self._tdp, bank, self._now)
            self._contracts[bank.did], answer = bank.enter("contract", document, self._tdp)
            self._print(f"{bank.name} (TDC) and {self._tdp.name} sign a contract, entry {answer.index}")
        with heartbeat(self._console, "calibrating the noise with privacy loss distributions"):
            noise = calibrate_noise(PROBABILITY, STEPS, RUN_EPSILON, _DELTA, participants.RELATION)
        self._plan = Plan(PROBABILITY, noise, Fraction(1), STEPS, digits.RECORDS // 2)
        quoted = self._banks[0].service.quote(self._banks[0].signer, self._banks[0].did, self._charge_body(self._first))
        for line in convert(tuple[RunEpsilon, ...], quoted.body["run_epsilon"]):
            self._print(
                f"each plans {STEPS} steps, sampling probability 1/2, noise multiplier "
                f"{self._plan.to_json()['noise_multiplier']}: {line} ({line.version})"
            )
        self._print("that ε is of the whole plan, and bounds a run whenever it stops: it is the same number everywhere")
        self._run(self._banks[0], self._first, "2026-q3.sealed", accuracy_target="0.8")

    def until_refused(self) -> None:
        """Chapter 3: runs follow until one no longer fits."""
        self._chapter(3, "Runs follow, until one no longer fits")
        for turn in range(1, RUNS_MAX):
            run = self._run(self._banks[turn % 2], self._first, "2026-q3.sealed")
            if run.refusal is not None:
                self._print(f"[bold]refused[/bold], entry {run.refusal['index']}: the key stays with {self._tdp.name}")
                for reason in run.refusal["reasons"]:
                    self._print(f"  {reason['code']}: {reason['detail']}")
                return
        raise AssertionError("no run was ever refused")

    def renewal(self) -> None:
        """Chapter 4: new records, and a merger."""
        self._chapter(4, "New records, and a merger")
        second = self._open_digits("2026-q4", digits.SECOND)
        bank = self._runs[-1].task.bank
        self._run(bank, second, "2026-q4.sealed")
        merged = self._create("banyan-cedar", "Banyan Cedar Bank", "TDC")
        merged.register(self._sro)
        before = self._lineages(self._first)
        body: c.Object = {"organisation": merged.did, "parents": [bank.did for bank in self._banks]}
        answer = self._sro.submit("merger", body)
        self._print(f"{self._banks[0].name} and {self._banks[1].name} merge into {merged.name}, entry {answer.index}")
        after = self._lineages(self._first)
        parts = " + ".join(str(before[bank.did]) for bank in self._banks)
        self._print(
            f"loss on 2026-q3 in units of 2^-40 nat at the rule's highest order: {parts} = {after[merged.did]}: "
            "the union of their runs, each once"
        )
        self._quote(merged, second)
        self._fits = Task("banyan-cedar-run-1", merged, self._contracts[self._banks[0].did], second, "2026-q4.sealed")

    def answers(self, now: int) -> None:
        """Chapter 5: an ensemble at Level 2 that never leaves, and the answers that do."""
        self._chapter(5, "A model that never leaves, and answers")
        _, answer = self._sro.enter("policy", participants.sealing_policy(self._policy, self._tdp, now))
        self._print(
            f"{self._sro.name} puts {participants.SEALED} at Level 2: no model of it leaves, entry {answer.index}"
        )
        self._tdp.enter("dataset", participants.sealed_dataset(self._tdp))
        body = participants.partition(self._tdp, "2026", tumours.RECORDS, participants.SEALED)
        archive = tumours.archive(tumours.PRIVATE), tumours.CLASSES
        identities = tumours.identities(tumours.PRIVATE)
        ref = self._open_partition(body, f"{participants.SEALED}.sealed", archive, identities)
        clinics = self._create("sesame-clinics", "Sesame Clinics", "TDC")
        clinics.register(self._sro)
        contract, _ = clinics.enter(
            "contract", participants.contract(self._tdp, clinics, now, participants.SEALED), self._tdp
        )
        (self._folder / "data" / "tumours-public.npz").write_bytes(tumours.archive(tumours.PUBLIC))
        asked = self._folder / "data" / "questions.npz"
        own, known = tumours.questions(QUESTIONS)
        asked.write_bytes(own)
        self._print(f"{clinics.name} charges {QUESTIONS} answers of {TEACHERS} teachers, with noise of {NOISE} votes")
        task = Task("clinics-answers", clinics, contract, ref, f"{participants.SEALED}.sealed")
        job = write_ensemble_job(self._folder, self._address, task)
        found = ask_sealed(job, asked, self._console)
        (line,) = convert(tuple[RunEpsilon, ...], found.sealed["run_epsilon"])
        self._print(f"{line}, for all {QUESTIONS}, and paid before the first teacher was trained")
        right = sum(one == other for one, other in zip(found.classes, known, strict=True))
        self._print(f"{right} of {QUESTIONS} answers are what the clinic knows of its own patients by now")
        posted: Any = clinics.service.charge(task.id)["steps_posted"]
        share = self._shares(ref)["share"]
        self._print(f"the ledger: {posted} answers posted, {share} of the partition's capacity is used")
        self._print(f"of the run there is {', '.join(found.left)}; no model, no vote and no count has left")

    def leave_job(self, address: Address) -> Path:
        """After the merger: a job of the merged bank's that still fits, for when the book is served at ``address``."""
        return write_job(self._folder, address, self._plan, self._fits)

    def _lineages(self, ref: str) -> dict[str, int]:
        """Each organisation's lineage and its loss at the highest order, pending counted in full."""
        accounts: Any = self._sro.service.accounts(ref)["accounts"]
        return {
            did: int(account["posted"]["finite"][-2]) + int(account["pending"]["finite"][-2])
            for account in accounts
            for did in account["organisations"]
        }

    def _quote(self, merged: Organisation, second: str) -> None:
        """What the merged bank would get now, under a contract of one that it descends from."""
        for name, ref in (("2026-q3", self._first), ("2026-q4", second)):
            try:
                merged.service.quote(merged.signer, merged.did, self._charge_body(ref))
                self._print(f"a run of {merged.name} on {name} would be permitted")
            except Refused as refused:
                reasons = "; ".join(reason.detail for reason in refused.reasons)
                self._print(f"a run of {merged.name} on {name} would be refused ({refused.code}): {reasons}")

    def _charge_body(self, ref: str) -> c.Object:
        sealing: c.Object = {"crv": "X25519", "kty": "OKP", "x": c.base64url(bytes(range(32)))}
        return {
            "clean_room": {"sealing": sealing, "signing": Signer.generate().jwk},
            "contract": self._contracts[self._banks[0].did],
            "deadline": self._now + 3_600_000,
            "partitions": [ref],
            "plan": self._plan.to_json(),
            "step_leases": True,
        }

    def _run(self, bank: Organisation, ref: str, data: str, accuracy_target: str = "") -> Run:
        name = f"{bank.slug}-run-{len(self._runs) + 1}"
        task = Task(name, bank, self._contracts[bank.did], ref, data, accuracy_target)
        self._print(f"{bank.name} requests {name} on {ref.rpartition('/')[2]}")
        run = train(write_job(self._folder, self._address, self._plan, task), task, self._console)
        run.shares = self._shares(ref)
        self._runs.append(run)
        if run.report is not None:
            steps, charged = run.report["steps"], run.report["steps_charged"]
            # Steps that are leased are spent, and it leases a block ahead.
            posted: Any = bank.service.charge(name)["steps_posted"]
            back = f", stopped early: {posted} were leased and are posted, {charged - posted} go back to headroom"
            early = back if steps < charged else ""
            self._print(
                f"{steps} of {charged} steps ran{early}; accuracy {run.report['accuracy']:.1%} on the public test set; "
                f"{run.shares['share']} of the partition's capacity is used"
            )
        return run

    def _shares(self, ref: str) -> dict[str, str]:
        accounts: Any = self._sro.service.accounts(ref)["accounts"]
        everyone = next(account for account in accounts if account["holder"] == "global")
        share = ceil_decimal(100 * parse_number(everyone["share_of_budget"].rstrip("0").rstrip("."), "share"), 1)
        return {"more": str(everyone["runs_like_the_last"]), "share": f"{share} %", "odometer": everyone["odometer"]}

    def table(self) -> Table:
        """What each run reveals by its whole plan, what share is used, and how many more such runs fit."""
        table = Table(title="What was released, and what is left", title_justify="left")
        for name in ("run", "partition"):
            table.add_column(name, no_wrap=True)
        for name in ("steps", "accuracy"):
            table.add_column(name, justify="right", no_wrap=True)
        for name in (f"ε of the run at δ {participants.DELTA}", "share used", "such runs that still fit"):
            table.add_column(name, justify="right", overflow="fold")
        for run in self._runs:
            name = run.task.partition.rpartition("/")[2]
            if run.report is None:
                table.add_row(run.task.id, name, "0", "refused", "0", run.shares["share"], "0")
                continue
            steps, accuracy = run.report["steps"], f"{run.report['accuracy']:.1%}"
            # Of the whole plan, however few of its steps ran.
            table.add_row(
                run.task.id, name, str(steps), accuracy, run.report["epsilon"], run.shares["share"], run.shares["more"]
            )
        return table

    def _chapter(self, number: int, title: str) -> None:
        self._console.print(f"\n[bold]{number}. {title}[/bold]")

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False)


def verification(folder: Path, console: Console) -> None:
    """Chapter 6: the log is verified; then one byte of one entry of a copy is changed."""
    console.print("\n[bold]6. The log is verified, and a forgery is found[/bold]")
    show = partial(console.print, highlight=False)
    book, copy = folder / "book.sqlite", folder / "tampered.sqlite"
    show(_verify(book, folder, console))
    with sqlite3.connect(book) as source, sqlite3.connect(copy) as target:
        source.backup(target)
        index, data = target.execute(
            "SELECT position, data FROM entry WHERE kind = 'post' ORDER BY position"
        ).fetchone()
        at = data.index(b'"steps":') + len(b'"steps":')
        forged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        target.execute("DROP TRIGGER entry_no_update")
        target.execute("UPDATE entry SET data = ? WHERE position = ?", (forged, index))
    source.close()
    target.close()
    show(f"in a copy of the book, one byte of entry {index} is changed, in the steps it posted")
    show(_verify(copy, folder, console))


def _verify(book: Path, folder: Path, console: Console) -> str:
    command = [sys.executable, "-m", "epsilon_ledger", "verify", str(book), "--log", str(folder / "log.vkey")]
    with heartbeat(console, f"verifying {book.name}"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    return (done.stdout or done.stderr).strip()
