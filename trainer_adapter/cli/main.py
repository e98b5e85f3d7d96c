"""The trainer's commands: train, statistics, release, evaluate, device. torch loads inside a command only."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from ledger.command_line.verbosity import is_verbose, plain
from ledger.domain.exit_codes import ExitCode
from trainer_adapter.cli import answer_commands
from trainer_adapter.cli.command_start import (
    begin,
    charged_assignment,
    charged_job,
    print_report,
    profile_of,
    require_pytorch,
    say,
    sealed_job,
)
from trainer_adapter.cli.exit_codes import TrainEnding, end_check

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object
    from trainer_adapter.cli.check import JobCheck
    from trainer_adapter.cli.ensemble import EnsembleCheck
    from trainer_adapter.cli.train import Report
    from trainer_adapter.devices.rank_group import RankGroup
    from trainer_adapter.job.job_spec import Job
    from trainer_adapter.run.charged_run import Run
    from trainer_adapter.session.model_release import Pause

_GROUP: Final = CommandGroup()
_JOBS: Final = CommandGroup("job", "Jobs: check one before it is charged; the form that they have.")
_WATERMARKS: Final = CommandGroup("watermark", "Marks in models: find the runs that a model descends from.")
app: Final = _GROUP.app
for _group in (_JOBS, _WATERMARKS):
    app.add_typer(_group.app, name=_group.name)
app.registered_commands.extend(answer_commands.GROUP.app.registered_commands)
_DETAILS: Final = ("rounding takes at most ", "data decrypted in memory")
"""How stages begin that are reported to programs, and to people under --verbose."""


def _print_marks(found: Object) -> None:
    """The runs whose marks are in a model, for people."""
    from trainer_adapter.cli.watermark import marks_in_words

    typer.echo(marks_in_words(found))


SealedJob = Annotated[Path, typer.Argument(metavar="JOB", help="The job file of a run that left a sealed model.")]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until the providers have had their notice of the model.")]


@_GROUP.app.command(epilog="\nExamples:\n\n  epsilon device\n\n  CUDA_VISIBLE_DEVICES= epsilon device\n")
def device() -> None:
    """Name the device that training would run on."""
    require_pytorch()
    from trainer_adapter.cli.train import best_device, device_in_words

    typer.echo(device_in_words(best_device()))


@_GROUP.command(
    "demo/jobs/banyan-cedar-run-1.toml",
    "job.toml --json > report.json",
    note="With a table `[train.resume]` in the job, a run that was killed goes on with --resume.",
)
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
    begin(as_json=as_json, printer=_print_error)
    from trainer_adapter.cli.train import follow_job
    from trainer_adapter.devices.attach_ranks import ranks_of
    from trainer_adapter.job_models.model_trial import try_models
    from trainer_adapter.session.model_release import MODEL_FILE
    from trainer_adapter.session.noise_choice import load_job
    from trainer_adapter.session.protocol import consumer_service

    with errors_reported(as_json=as_json, printer=_print_error):
        loaded, pause = load_job(job), time.sleep if wait else None
        profile = profile_of(job)
        try_models(loaded)
        ranks = ranks_of(loaded)
        if ranks is not None and not ranks.leads:
            follow_job(loaded, ranks)
            return
        with consumer_service(loaded) as service:
            ending = TrainEnding(service, loaded.id, profile, resumes=loaded.resume is not None)
            with errors_reported(as_json=as_json, id=loaded.id, ending=ending, printer=_print_error):
                run = _run_for_programs if as_json else _run_for_people
                report = run(loaded, service, pause=pause, resume=resume, ranks=ranks)
    if as_json:
        _print_event("report", **report.to_json())
    else:
        typer.echo(report.in_words())
        if report.model:
            typer.echo(f"  the model: {loaded.output / MODEL_FILE}")


@_GROUP.command("statistics.toml", "statistics.toml --json > report.json")
def statistics(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML whose plan is of kind 'statistics'.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    wait: Wait = False,
) -> None:
    """Take the statistics that a job names in one clean room: charge, key, data, noisy answers, post."""
    with charged_assignment(job, as_json=as_json) as (known, service):
        from trainer_adapter.statistics.statistics_run import run_statistics

        report = run_statistics(known, service, say, time.sleep if wait else None)
    print_report(report, as_json=as_json)


@_GROUP.command("tune.toml", "tune.toml --json > report.json")
def tune(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML with a table [train.tuning].")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    wait: Wait = False,
) -> None:
    """Train a secret number of trials of a declared space in one clean room, and release the best model."""
    with charged_job(job, as_json=as_json) as (known, service):
        from trainer_adapter.cli.tune import tune_job

        report = tune_job(known, service, say, time.sleep if wait else None)
    print_report(report, as_json=as_json)


@_GROUP.command("audit.toml", "audit.toml --json > report.json")
def audit(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML whose plan is of kind 'audited'.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Train once beside canaries in one clean room, and record a lower bound on ε beside the charge."""
    with charged_job(job, as_json=as_json) as (known, service):
        from trainer_adapter.cli.audit import audit_job

        report = audit_job(known, service, say)
    print_report(report, as_json=as_json)


@_JOBS.command("job.toml", "job.toml --json")
def check(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Try all that a job names, and get the decision on its charge; nothing is recorded."""
    begin(as_json=as_json)
    from trainer_adapter.session.protocol import consumer_service

    with errors_reported(as_json=as_json, ending=end_check):
        from ledger.mechanisms.ensembles import EnsemblePlan
        from trainer_adapter.cli.check import check_job, load_for_check
        from trainer_adapter.cli.ensemble import check_ensemble

        loaded = load_for_check(job)
        with consumer_service(loaded) as service:
            report: JobCheck | EnsembleCheck
            if isinstance(loaded.plan, EnsemblePlan):
                report = check_ensemble(loaded, service, say)
            else:
                report = check_job(loaded, service)
    typer.echo(json.dumps(report.to_json()) if as_json else plain(report.in_words()))
    if not report.quote.permitted:
        raise typer.Exit(ExitCode.REFUSED)


@_JOBS.command("job.toml", "job.toml --bands 8")
def noise(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML that states its ε.")],
    *,
    bands: Annotated[
        int | None,
        typer.Option("--bands", metavar="N", help="Steps of a round; all steps for a stream. Default: try several."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Optimise correlated noise for a job's ε and steps, beside independent noise; nothing is recorded."""
    begin(as_json=as_json)
    with errors_reported(as_json=as_json, ending=end_check):
        from trainer_adapter.dpsgd.correlated.noise_report import report_noise

        report = report_noise(job, bands)
    print_report(report, as_json=as_json)


@_JOBS.command("", "> job.schema.json")
def schema() -> None:
    """Print the JSON Schema of a job, as TOML reads it."""
    from trainer_adapter.job.job_schema import job_schema

    typer.echo(json.dumps(job_schema(), indent=2, ensure_ascii=False))


@_GROUP.command("job.toml", "job.toml --json")
def evaluate(
    job: SealedJob, *, as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False
) -> None:
    """Open a sealed model in an attested clean room, and measure it on the job's public test set."""
    with sealed_job(job, as_json=as_json) as (known, service):
        from trainer_adapter.cli.evaluate import measure

        report = measure(known, service, say)
    print_report(report, as_json=as_json)


@_GROUP.command("job.toml", "job.toml --wait --json")
def release(
    job: SealedJob,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was released, or why not, as JSON.")] = False,
    wait: Wait = False,
) -> None:
    """Request the release of a sealed model again, and write the model if it may leave."""
    with sealed_job(job, as_json=as_json) as (known, service):
        from trainer_adapter.cli.evaluate import release as release_model

        model = release_model(known, service, say, time.sleep if wait else None)
    typer.echo(json.dumps({"charge": known.id, "model": model}) if as_json else f"{known.id}: released as {model}")


@_WATERMARKS.read_command("sro.toml model.safetensors", "auditor.toml model.safetensors --json", table=_print_marks)
def find(
    service: Service,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Weights: a file of safetensors, or its folder.")],
) -> Object:
    """Name the runs that a model descends from, by the marks in its weights; nothing is recorded."""
    require_pytorch()
    from trainer_adapter.cli.watermark import find_marks

    return find_marks(model, service)


def _print_error(error: Object) -> None:
    """An error as one of the events: a refusal, or anything else that went wrong."""
    _print_event("refused" if error["exit_code"] == ExitCode.REFUSED else "fault", **error)


def _run_for_programs(
    job: Job, service: Service, *, pause: Pause | None, resume: bool, ranks: RankGroup | None
) -> Report:
    from trainer_adapter.cli.train import train_job

    def on_step(run: Run, step: int) -> None:
        whole = run.privacy.epsilon
        event: Object = {"epsilon": whole.number, "partition": whole.partition, "step": step, "steps": run.steps}
        run.output.put(event, lambda: _print_event("step", **event))

    def say(line: str) -> None:
        _print_event("stage", text=line)

    return train_job(job, service, say, on_step=on_step, pause=pause, resume=resume, ranks=ranks)


def _run_for_people(
    job: Job, service: Service, *, pause: Pause | None, resume: bool, ranks: RankGroup | None
) -> Report:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from trainer_adapter.cli.train import train_job

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[loss]}"))

    def say(line: str) -> None:
        if line.startswith(_DETAILS) and not is_verbose():
            return
        # A line may be a command to copy: it is neither wrapped nor read as markup.
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("noisy steps", total=job.plan.steps, loss="")

        def on_step(run: Run, step: int) -> None:
            shown = f"ε {run.privacy.epsilon.number} in all on {run.privacy.epsilon.partition}"
            run.output.put({"shown": step}, lambda: progress.update(task, completed=step, loss=shown))

        return train_job(job, service, say, on_step=on_step, pause=pause, resume=resume, ranks=ranks)


def _print_event(event: str, **members: object) -> None:
    typer.echo(json.dumps({"event": event, **members}))
