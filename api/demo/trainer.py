"""One training run of the demonstration: ``epsilon train`` in a process of its own, as a clean room would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from api.demo.participants import ATTESTER, Organisation
from ledger.mechanisms.plan import Plan, USER
from ledger.verifier import LogKey


class TrainerFailed(RuntimeError):  # noqa: N818 - what is the case
    """The trainer ended without a report and without a refusal."""


@dataclass
class Run:
    """What became of one run: a report, or a refusal."""

    id: str
    bank: Organisation
    partition: str
    report: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None
    shares: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service and the issuer are, and which log to trust."""

    service: str
    issuer: str
    log: LogKey


@dataclass(frozen=True, slots=True)
class Task:
    """What one run is given beyond its plan."""

    id: str
    bank: Organisation
    contract: str
    partition: str
    data: str
    accuracy_target: str = ""


def write_job(folder: Path, address: Address, plan: Plan, task: Task) -> Path:
    """The job's file. Its values are our own: names, digests and numbers that need no escaping."""
    slug = task.bank.did.split(":")[2].split(".")[0]
    target = f'accuracy_target = "{task.accuracy_target}"\n' if task.accuracy_target else ""
    known = plan.to_json()
    unit = 'unit = "user"\n' if plan.unit == USER else ""
    text = f"""v = 1

[train]
id = "{task.id}"
service = "{address.service}"
issuer = "{address.issuer}"
log = "{address.log.vkey}"
actor = "{task.bank.did}"
key = "../keys/{slug}.pem"
contract = "{task.contract}"
deadline_s = 3600
model = "digits-linear"
learning_rate = "0.3"
momentum = "0.9"
block_steps = 10
test = "../data/test.npz"
{target}output = "../runs/{task.id}"

[train.attester]
issuer = "{ATTESTER}"
key = "../keys/attester.pem"

[train.data]
"{task.partition}" = "../data/{task.data}"

[train.plan]
batch_size_expected = {known["batch_size_expected"]}
clipping_norm = "{known["clipping_norm"]}"
kind = "dp_sgd"
noise_multiplier = "{known["noise_multiplier"]}"
steps = {known["steps"]}
{unit}v = 1

[train.plan.sampler]
kind = "poisson"
probability = "{known["sampler"]["probability"] if isinstance(known["sampler"], dict) else ""}"
"""
    path = folder / "jobs" / f"{task.id}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def train(job: Path, task: Task, console: Console) -> Run:
    """Run a job to its end, showing its stages and its steps. Raises: TrainerFailed."""
    run = Run(task.id, task.bank, task.partition)
    columns = (TextColumn("  {task.description}"), BarColumn(), TextColumn("{task.fields[done]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("the trainer starts", total=None, done="")
        for event in _events(job):
            if event["event"] == "stage":
                console.print(f"  [dim]·[/dim] {event['text']}", highlight=False)
            elif event["event"] == "step":
                done = f"{event['step']} of {event['steps']}, ε {event['epsilon']}"
                progress.update(bar, description="noisy steps", completed=event["step"], total=event["steps"], done=done)
            elif event["event"] == "report":
                run.report = event
            elif event["event"] == "refused":
                run.refusal = event
    if run.report is None and run.refusal is None:
        raise TrainerFailed(f"the trainer of {task.id} ended without a report")
    return run


def _events(job: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "epsilon_ledger", "train", str(job), "--json"]
    # A fault of the trainer is told by its last event; what else it writes would break the progress bar.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = False
        for line in process.stdout:
            event = json.loads(line)
            told = told or event["event"] in {"report", "refused"}
            yield event
        fault = process.stderr.read()
    if not told:
        raise TrainerFailed(fault.strip() or f"the trainer ended with exit code {process.returncode}")
