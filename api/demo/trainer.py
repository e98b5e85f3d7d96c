"""One training run of the demonstration: ``epsilon train`` in a process of its own, as a clean room would be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from api.demo.heartbeat import heartbeat
from api.demo.participants import Organisation
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import USER
from ledger.verifier import LogKey


class TrainerFailed(RuntimeError):  # noqa: N818 - what is the case
    """The trainer ended without a report and without a refusal."""


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


@dataclass
class Run:
    """What became of one run: a report, or a refusal."""

    task: Task
    report: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None
    shares: dict[str, str] = field(default_factory=dict)


def write_job(folder: Path, address: Address, plan: Plan, task: Task) -> Path:
    """The job's file."""
    known = plan.to_json()
    sampler = known["sampler"]
    assert isinstance(sampler, dict)
    path = folder / "jobs" / f"{task.id}.toml"
    text = rendered(
        "job.toml",
        **{name: known[name] for name in ("batch_size_expected", "clipping_norm", "noise_multiplier", "steps")},
        accuracy_target=f'accuracy_target = "{task.accuracy_target}"\n' if task.accuracy_target else "",
        actor=task.bank.did,
        contract=task.contract,
        data=task.data,
        id=task.id,
        issuer=address.issuer,
        log=address.log.vkey,
        partition=task.partition,
        probability=sampler["probability"],
        service=address.service,
        slug=task.bank.slug,
        unit='unit = "user"\n' if plan.unit == USER else "",
    )
    path.write_text(text, encoding="utf-8")
    return path


def rendered(name: str, **values: object) -> str:
    """A packaged TOML file with its ``$`` names replaced: our own digests and numbers, which need no escaping."""
    return Template(files("api.demo").joinpath(name).read_text("utf-8")).substitute(values)


def train(job: Path, task: Task, console: Console) -> Run:
    """Run a job to its end, showing its stages and its steps. Raises: TrainerFailed."""
    run = Run(task)
    starting = heartbeat(console, "training, in a process of its own that first loads PyTorch")
    columns = (TextColumn("  {task.description}"), BarColumn(), TextColumn("{task.fields[done]}"))
    with starting, Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("the trainer starts", total=None, done="")
        for event in _events(job):
            if event["event"] == "stage":
                console.print(f"  [dim]·[/dim] {event['text']}", highlight=False)
            elif event["event"] == "step":
                step, steps = event["step"], event["steps"]
                done = f"{step} of {steps}, ε {event['epsilon']}"
                progress.update(bar, description="noisy steps", completed=step, total=steps, done=done)
            elif event["event"] == "report":
                run.report = event
            elif event["event"] == "refused":
                run.refusal = event
    return run


def _events(job: Path) -> Iterator[dict[str, Any]]:
    # The trainer reports an error in its last event; what else it writes would break the progress bar. Its model is
    # so small that several threads would wait for one another longer than they compute.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "epsilon_ledger", "train", str(job), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        ended = False
        for line in process.stdout:
            event = json.loads(line)
            ended = ended or event["event"] in {"report", "refused"}
            yield event
        error = process.stderr.read()
    if not ended:
        raise TrainerFailed(error.strip() or f"the trainer ended with exit code {process.returncode}")
