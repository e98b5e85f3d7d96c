"""``epsilon dataset advance``: the next slice of a stream opens with a file, and what is past its age retires."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli import seal
from client.cli.arguments import AsJson, ProfilePath
from client.cli.error_report import errors_reported
from client.cli.output import print_json
from ledger.command_line.printable_text import say

if TYPE_CHECKING:
    from client.dataset_files.stream_advance import Advanced

_Stream = Annotated[str, typer.Argument(metavar="DATASET", help="The id of the dataset that has the stream.")]
_File = Annotated[Path, typer.Argument(metavar="FILE", help="The period's records: npz, CSV, Parquet, or a folder.")]
_Period = Annotated[str, typer.Option(metavar="PERIOD", help="Whose slice opens; the last one that is over.")]
_Slices = Annotated[Path, typer.Option(metavar="FOLDER", help="Where the slices lie, and the key of commitments.")]
_Schema = Annotated[Path | None, typer.Option(metavar="FILE", help="How records are read, in TOML (dataset seal).")]
_Person = Annotated[str, typer.Option(metavar="A,B", help="Whose a record is: columns; the user's or identity's.")]
_LeaveOut = Annotated[bool, typer.Option("--leave-out", help="Leave out records that may not be in the slice.")]
_Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why the budget is above the recommended one, if it is.")]

group = seal.group
"""``epsilon dataset``, with this command."""


@group.command(
    "hospital.toml claims claims-2026-W31.csv --slices slices --schema schema.toml",
    "hospital.toml claims week.npz --slices slices --period 2026-W31 --leave-out --json",
    note="The same call again gets the same answer, and ends what a broken call began. docs/streams.md has the timer.",
)
def advance(  # noqa: PLR0913 - each an option
    profile: ProfilePath,
    dataset: _Stream,
    file: _File,
    *,
    slices: _Slices,
    period: _Period = "",
    schema: _Schema = None,
    person: _Person = "",
    leave_out: _LeaveOut = False,
    reason: _Reason = "",
    as_json: AsJson = False,
) -> None:
    """Seal a file as the next slice of a stream, open it, and retire slices past their age."""
    from client.dataset_files.record_schema import RecordSchema
    from client.dataset_files.seal import Records, open_records
    from client.dataset_files.stream_advance import StreamAdvance
    from client.profile.profile import Profile

    with errors_reported(as_json=as_json):
        signing = Profile.load(profile)
        signer = signing.signer()
        read = RecordSchema() if schema is None else RecordSchema.load(schema)
        described = replace(read, person=seal.person_columns(person)) if person else read

        def records() -> Records:
            return open_records(file, described)

        with signing.open() as service:
            run = StreamAdvance(service, signer, signing.actor, dataset, slices, leave_out, reason)
            done = run.advance(file, records, period)
    _print(done, as_json=as_json)


def _print(done: Advanced, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "folder": str(done.folder),
                "id": done.answer.id,
                "index": done.answer.index,
                "left_out": done.left_out,
                "missed": [*done.missed],
                "outcome": done.answer.outcome,
                "partition": done.partition,
                "period": done.period,
                "repeated": done.answer.repeated,
                "retired": [*done.retired],
            }
        )
        return
    again = ", recorded before" if done.answer.repeated else ""
    say(f"{done.partition}: open, entry {done.answer.index}{again}; sealed in {done.folder}")
    if done.left_out:
        say(f"  {done.left_out} records were left out: {done.folder / 'secret' / 'slice.json'} names them")
    for ref in done.retired:
        say(f"  {ref}: past its age, retired")
    if done.missed:
        say(f"  missed, and stay missed: {', '.join(done.missed)}")
    say(f"Next: put {done.folder / 'secret' / 'data.key'} in your key store, and send out the share folder.")
