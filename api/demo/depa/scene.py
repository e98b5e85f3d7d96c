"""The scenario from DEPA's papers to a verified book, in seven steps; each prints a line or a few."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from api.demo.depa import admission_counts, papers, parties, plans, preparation, raw_files
from api.demo.heartbeat import heartbeat
from api.demo.participants import ATTESTER, Enrol
from api.demo.trainer import Address, Run, Task, train
from api.keys.data_key_store import FileKeyStore
from client.keys.signer import Signer
from client.service.charged_stages import charged_stages
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c
from policy.depa.adaptation import PartyDecisions, adapt
from policy.depa.evaluation import Terms
from policy.depa.job_file import job_file

PARTITION: Final = "covid"
RULE: Final = "catalogue"
SCALE, AREA = Fraction(1, 10), Fraction(3, 10)
"""The ε of the statistics and of the area under the curve in the run that is played."""
LITTLE: Final = Fraction(6, 100)
"""The ε of each where as many runs as possible are to fit."""
RUNS_MAX: Final = 100
RUN: Final = "covid-run-1"


@dataclass
class Scene:
    """The scenario on a running service.

    Attributes:
        run: what became of the run.
        counted: how many runs fit, by what they are and the rule.
        document: our contract, as it was adapted; contract: its digest, once it is signed.
    """

    folder: Path
    address: Address
    enrol: Enrol
    keys: FileKeyStore
    console: Console
    now: int
    level: int = 1
    run: Run | None = None

    def __post_init__(self) -> None:
        """Nothing is done yet."""
        self.counted: list[tuple[str, admission_counts.RunCount]] = []
        self.contract = ""
        self.document: c.Object = {}

    def play(self) -> None:
        """From the papers to the run and its audit. Raises: OSError, Malformed, Refused, Unreachable, TrainerFailed."""
        self._show(train(self.ready(), Task(RUN, self.parties.tdc, self.contract, "", ""), self.console))
        self._audit()
        self._count()

    def ready(self) -> Path:
        """Everything up to the run: its job. Raises: as :meth:`play`."""
        self.sealed()
        self.contract = self._sign(self.document)
        self._title(5, "Statistics, training and the AUC are one charge")
        path = self.folder / "jobs" / f"{RUN}.toml"
        path.write_bytes(job_file(self.template(), self._checked, "../pipeline.json", self._shipped))
        return path

    def sealed(self) -> None:
        """Everything up to the signatures. Raises: as :meth:`play`."""
        self._register()
        self.document, self.training = self._adapt()
        self._seal(plans.staged(self.training, SCALE, AREA))

    def template(self) -> bytes:
        """The consumer's job without what the adapted pair decides, for a folder beside the keys."""
        values: c.Object = {
            "actor": self.parties.tdc.did,
            "attester": {"issuer": ATTESTER, "key": "../keys/attester.pem"},
            "block_steps": 20,
            "charged": plans.charged(SCALE, AREA, papers.MEASURED),
            "columns": {self.parties.reference(name, PARTITION): plans.columns(name) for name in raw_files.NAMES},
            "data": {ref: str(path.resolve()) for ref, path in self._data.items()},
            "deadline_s": 3_600,
            "id": RUN,
            "issuer": self.address.issuer,
            "key": f"../keys/{self.parties.tdc.slug}.pem",
            "learning_rate": "8",
            "log": self.address.log.vkey,
            "model": "linear",
            "momentum": "0",
            "output": f"../runs/{RUN}",
            "outputs": 2,
            "service": self.address.service,
            "test": str(self._public.resolve()),
        }
        lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
        return "\n".join(["v = 1", "", "[train]", *lines, ""]).encode()

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _title(self, number: int, title: str) -> None:
        self.console.print(f"\n[bold]{number}. {title}[/bold]")

    def _register(self) -> None:
        self._title(1, "Three providers, a consumer, a regulator")
        attester = Signer.generate()
        attester.save(self.folder / "keys" / "attester.pem")
        self.parties = parties.registered(self.folder / "keys", self.enrol, self.now, attester, self.level)
        self._say(f"registered: {', '.join(tdp.did for tdp in self.parties.tdps.values())} (TDP), and their consumer")
        self._say(
            f"Level {self.level}: one budget of ε {parties.EPSILON} at δ {parties.DELTA} for all runs of all consumers"
        )

    def _adapt(self) -> tuple[c.Object, Plan]:
        self._title(2, "DEPA's contract and pipeline are adapted")
        contract, pipeline, description = papers.papers()
        self._shipped = pipeline
        self._say(f"papers: {description}")
        starts, ends = parties.dates(self.now)
        providers = {name: tdp.did for name, tdp in self.parties.tdps.items()}
        decided = PartyDecisions(self.parties.tdc.did, providers, starts, ends, rows=1, least_noise=True)
        terms = Terms(
            self.now, level=self.level, records=parties.RECORDS, runs=RUNS_MAX, budget=Fraction(parties.EPSILON)
        )
        with heartbeat(self.console, "finding the noise that DEPA's ε means"):
            adapted = adapt(contract, pipeline, terms, decided)
        for change in adapted.changes:
            self._say(f"changed {change.field}: {change.before or 'nothing'} -> {change.after} ({change.reason})")
        self._say(
            "what was fitted and exact goes; the clean room standardises and measures by charged statistics instead"
        )
        checked = adapted.checked
        if checked.contract is None or checked.priced is None:
            raise RuntimeError(f"the pair cannot be adapted: {'; '.join(reason.text for reason in checked.reasons)}")
        for name, data in (("contract.json", adapted.contract), ("pipeline.json", adapted.pipeline)):
            (self.folder / name).write_bytes(data)
        self._checked = checked
        document = c.members(c.parse(checked.contract, len(checked.contract), "contract"), "contract")
        return document, Plan.of(checked.priced.plans[0])

    def _seal(self, plan: RunPlan) -> None:
        self._title(3, "Each provider prepares its table on its own machine")
        made = self.folder / "raw"
        made.mkdir()
        raw, description = raw_files.raw_files(made)
        self._say(f"raw files: {description}")
        self._data = preparation.seal_tables(self.parties, self.keys, raw, self.folder / "data", PARTITION)
        self._public = preparation.public_sample(self.folder / "data")
        parties.open_partitions(self.parties, PARTITION, RULE, plan)
        self._say(f"sealed as declared, tokens in place of phone numbers, one row a person: {', '.join(self._data)}")

    def _sign(self, document: c.Object) -> str:
        self._title(4, "The adapted contract is signed by all")
        digest, answer = self.parties.tdc.enter("contract", document, *self.parties.tdps.values())
        self._say(f"contract {digest[:16]}…, signed by the consumer and three providers, entry {answer.index}")
        return digest

    def _show(self, run: Run) -> None:
        self.run = run
        if run.report is None:
            raise RuntimeError(f"the run was refused: {run.refusal}")
        report, answers = run.report, run.report["answers"]
        self._say(
            f"{report['steps']} of {report['steps_charged']} steps; ε {report['epsilon']} for all stages together"
        )
        if report["model"]:
            self._say(f"model released, SHA-256 {report['model'][:16]}…")
            error = answers["roc.auc_error"]
            self._say(f"AUC on the held-out private records: {answers['roc.auc']} ± {error} (95 % of the noise)")
        else:
            self._say("the model stays sealed at this Level, and its answers, the AUC among them, with it")

    def _audit(self) -> None:
        self._title(6, "What the auditor sees of the model")
        shown: Any = charged_stages(self.parties.auditor.service, RUN)
        for stage in shown["stages"]:
            owners = ", ".join(self._owner(stage, price) for price in stage["of"])
            self._say(f"{stage['stage']} {stage['name'] or stage['kind']}: {owners}")

    @staticmethod
    def _owner(stage: Any, price: Any) -> str:  # noqa: ANN401 - JSON
        names = [source["name"] for source in stage["sources"] if source["partition"] == price["partition"]]
        of = f" ({', '.join(names)})" if names else ""
        return f"{price['partition'].split('/')[0]}{of} at ε {price['epsilon']}"

    def _count(self) -> None:
        self._title(7, f"How many runs fit ε {parties.EPSILON}: charged until the ledger refuses")
        kinds: tuple[tuple[str, RunPlan], ...] = (
            ("training alone", self.training),
            (f"statistics and AUC at ε {float(LITTLE)} each", plans.staged(self.training, LITTLE, LITTLE)),
            (f"the run above (ε {float(SCALE)} and {float(AREA)})", plans.staged(self.training, SCALE, AREA)),
        )
        for number, (description, plan) in enumerate(kinds):
            for rule in ("reference", RULE, "renyi"):
                with heartbeat(self.console, f"counting: {description}, {rule}"):
                    name = f"{rule}-{number}"
                    counted = admission_counts.count_runs(self.parties, self.contract, name, rule, plan, self.now)
                self.counted.append((description, counted))
                self._say(f"{description}, rule {rule}: {counted.runs}{'' if counted.runs else f' ({counted.why})'}")


def verify(folder: Path, console: Console) -> None:
    """The last step: the whole book is verified by ``epsilon verify``. Raises: RuntimeError."""
    console.print("\n[bold]8. The whole is verified[/bold]")
    words = ["verify", str(folder / "book.sqlite"), "--log", str(folder / "log.vkey")]
    with heartbeat(console, "verifying the book"):
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "epsilon_ledger", *words], capture_output=True, text=True, check=False
        )
    console.print((done.stdout or done.stderr).strip(), highlight=False, markup=False)
    if done.returncode:
        raise RuntimeError("the book does not verify")


def _toml(value: c.Json) -> str:
    """A value as TOML spells it on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(member)}" for name, member in value.items()) + "}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)
