"""``epsilon ensemble``, ``answer``, ``ask``, ``aggregate``: models that never leave, and answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from trainer_adapter.cli.command_start import begin, charged_assignment, charged_job, print_report, say, sealed_job

GROUP: Final = CommandGroup()
_Job = Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML whose plan is of kind 'ensemble'.")]
_Answering = Annotated[Path, typer.Argument(metavar="JOB", help="The job file of an ensemble, or of a sealed model.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@GROUP.command("ensemble.toml", "ensemble.toml --json")
def ensemble(job: _Job, *, as_json: _Json = False) -> None:
    """Train an ensemble in one clean room and seal it: charge, key, data, teachers; nothing leaves."""
    with charged_job(job, as_json=as_json) as (known, service):
        from trainer_adapter.cli.ensemble import seal_ensemble

        report = seal_ensemble(known, service, say)
    print_report(report, as_json=as_json)


@GROUP.command("ensemble.toml", "ensemble.toml --end")
def answer(
    job: _Answering,
    *,
    end: Annotated[bool, typer.Option("--end", help="Take no more questions: post those that were answered.")] = False,
    as_json: _Json = False,
) -> None:
    """Open an ensemble or a sealed model in an attested clean room, and answer its consumer's questions."""
    with sealed_job(job, as_json=as_json) as (known, service):
        from trainer_adapter.cli.answer import answer_job

        report = answer_job(known, service, say, end=end)
    print_report(report, as_json=as_json)


@GROUP.command(
    "ensemble.toml questions.npz --room http://127.0.0.1:8300",
    "ensemble.toml public.npz --room http://127.0.0.1:8300 --labels student.npz",
)
def ask(
    job: _Answering,
    questions: Annotated[Path, typer.Argument(metavar="FILE", help="An archive whose `inputs` are the questions.")],
    *,
    room: Annotated[str, typer.Option("--room", metavar="URL", help="Where `epsilon answer` said that it answers.")],
    labels: Annotated[
        Path | None, typer.Option("--labels", metavar="FILE", help="Write the questions with their answers as targets.")
    ] = None,
) -> None:
    """Ask a room that answers, as the contract's consumer; one JSON object a question."""
    begin(as_json=False)
    from trainer_adapter.session.noise_choice import load_job
    from trainer_adapter.session.protocol import consumer_service

    with errors_reported():
        loaded = load_job(job)
        with consumer_service(loaded) as service:
            from client.keys.signer import Signer
            from trainer_adapter.ensembles.question_client import QuestionClient, room_key
            from trainer_adapter.ensembles.question_file import read_questions, write_labelled

            rows = read_questions(questions)
            key, answers = room_key(service, loaded.id), []
            with QuestionClient(room, loaded.id, key, Signer.load(loaded.key), time.sleep) as client:
                for reply in client.ask(rows):
                    answers.append(reply)
                    typer.echo(json.dumps(reply))
            if labels is not None:
                write_labelled(labels, rows, answers)


@GROUP.command("aggregate.toml", "aggregate.toml --json")
def aggregate(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job in TOML with a table [train.estimator].")],
    *,
    as_json: _Json = False,
) -> None:
    """Run an estimator on disjoint chunks in one clean room, and release one noisy aggregate of what it gives."""
    with charged_assignment(job, as_json=as_json) as (known, service):
        from trainer_adapter.ensembles.aggregate_run import aggregate as aggregate_job

        report = aggregate_job(known, service, say)
    print_report(report, as_json=as_json)
