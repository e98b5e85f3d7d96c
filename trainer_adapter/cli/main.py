"""The trainer's commands: ``train``, ``release``, ``evaluate`` and ``device``. torch loads inside a command only."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object
    from trainer_adapter.cli.job import Job
    from trainer_adapter.cli.train import Report
    from trainer_adapter.run.charged_run import Run
    from trainer_adapter.session.model_release import Pause

app = typer.Typer(pretty_exceptions_show_locals=False)

_EXAMPLES: Final = """
Examples:

  epsilon train demo/jobs/banyan-cedar-run-1.toml

  epsilon train job.toml --json > report.json

With a table `[train.resume]` in the job, a run that was killed goes on with --resume.
"""

Wait = Annotated[bool, typer.Option("--wait", help="Stay until the providers have had their notice of the model.")]


@app.callback()
def _group() -> None:
    """The trainer's commands."""


@app.command(
    epilog="""
Examples:

  epsilon device

  CUDA_VISIBLE_DEVICES= epsilon device
"""
)
def device() -> None:
    """Name the device that training would run on."""
    from trainer_adapter.cli.device import choose, in_words

    typer.echo(in_words(choose()))


@app.command(epilog=_EXAMPLES)
def train(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML.")],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: each stage, each step, then the report.")
    ] = False,
    wait: Wait = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with this job's run whose process died, where the job says how.")
    ] = False,
) -> None:
    """Run one training job in one clean room: charge, key, data, noise, post."""
    from client.cli.error_report import errors_reported
    from trainer_adapter.cli.exit_codes import TrainEnding
    from trainer_adapter.cli.job import Job

    with errors_reported(as_json=as_json, printer=_print_error):
        known, pause = Job.load(job), time.sleep if wait else None
        with _consumer(known) as service:
            ending = TrainEnding(service, known.id, resumes=known.resume is not None)
            with errors_reported(as_json=as_json, id=known.id, ending=ending, printer=_print_error):
                run = _run_for_programs if as_json else _run_for_people
                report = run(known, service, pause=pause, resume=resume)
    if as_json:
        _print_event("report", **report.to_json())
    else:
        typer.echo(report.in_words())


@app.command(
    epilog="""
Examples:

  epsilon evaluate job.toml

  epsilon evaluate job.toml --json
"""
)
def evaluate(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The job file of a run that left a sealed model.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Open a sealed model in an attested clean room, and measure it on the job's public test set."""
    from client.cli.error_report import errors_reported
    from trainer_adapter.cli.exit_codes import OpeningEnding
    from trainer_adapter.cli.job import Job

    with errors_reported(as_json=as_json):
        known = Job.load(job)
        with _consumer(known) as service, errors_reported(as_json=as_json, ending=OpeningEnding(service)):
            from trainer_adapter.cli.evaluate import measure

            opened = measure(known, service, lambda line: typer.echo(line, err=True))
    typer.echo(json.dumps(opened.to_json()) if as_json else opened.in_words())


@app.command(
    epilog="""
Examples:

  epsilon release job.toml

  epsilon release job.toml --wait --json
"""
)
def release(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The job file of a run that left a sealed model.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was released, or why not, as JSON.")] = False,
    wait: Wait = False,
) -> None:
    """Ask again whether a sealed model may leave, and write it if it may."""
    from client.cli.error_report import errors_reported
    from trainer_adapter.cli.exit_codes import OpeningEnding
    from trainer_adapter.cli.job import Job

    with errors_reported(as_json=as_json):
        known = Job.load(job)
        with _consumer(known) as service, errors_reported(as_json=as_json, ending=OpeningEnding(service)):
            from trainer_adapter.cli.evaluate import release as ask

            model = ask(known, service, lambda line: typer.echo(line, err=True), time.sleep if wait else None)
    typer.echo(json.dumps({"charge": known.id, "model": model}) if as_json else f"{known.id}: released as {model}")


def _print_error(error: Object) -> None:
    """An error as one of the events: a refusal, or anything else that went wrong."""
    from ledger.domain.exit_codes import ExitCode

    _print_event("refused" if error["exit_code"] == ExitCode.REFUSED else "fault", **error)


def _run_for_programs(job: Job, service: Service, *, pause: Pause | None, resume: bool) -> Report:
    from trainer_adapter.cli.train import train_job

    def on_step(run: Run, step: int) -> None:
        _print_event("step", epsilon=run.remaining().spent.number, step=step, steps=run.steps)

    def say(line: str) -> None:
        _print_event("stage", text=line)

    return train_job(job, service, say, on_step=on_step, pause=pause, resume=resume)


def _run_for_people(job: Job, service: Service, *, pause: Pause | None, resume: bool) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from trainer_adapter.cli.train import train_job

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"))

    def say(line: str) -> None:
        # A line may be a command to copy: it is neither wrapped nor read as markup.
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("noisy steps", total=job.plan.steps, loss="")

        def on_step(run: Run, step: int) -> None:
            left = run.remaining()
            progress.update(task, completed=step, loss=f"{left.spent} of {left.charged.number}")

        return train_job(job, service, say, on_step=on_step, pause=pause, resume=resume)


def _consumer(job: Job) -> Service:
    """The service as the consumer calls it."""
    from trainer_adapter.session.protocol import consumer_service

    return consumer_service(job)


def _print_event(event: str, **members: object) -> None:
    typer.echo(json.dumps({"event": event, **members}))
