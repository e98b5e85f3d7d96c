"""``epsilon dataset seal`` and ``commit``: a provider's file becomes sealed records, keys and commitments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from client.cli import dataset
from client.cli.error_report import errors_reported
from client.cli.output import print_json
from ledger.command_line.printable_text import say
from ledger.command_line.verbosity import is_verbose

if TYPE_CHECKING:
    from client.dataset_files.record_schema import RecordSchema
    from client.dataset_files.seal import Records, SealedDataset

group = dataset.group

_File = Annotated[
    Path, typer.Argument(metavar="FILE", help="npz, CSV or Parquet; or a folder of CSV or Parquet with schema.toml.")
]
_Ref = Annotated[str, typer.Argument(metavar="PARTITION", help="The partition it will be: provider/dataset/partition.")]
_Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="The folder that is made.")]
_Schema = Annotated[Path | None, typer.Option(metavar="FILE", help="A schema in TOML, in place of the options below.")]
_Target = Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict.")]
_Kind = Annotated[str, typer.Option(metavar="KIND", help="integer (classes, the default) or number (regression).")]
_Classes = Annotated[str, typer.Option(metavar="A,B", help="The target's values where it is text, in order.")]
_Inputs = Annotated[str, typer.Option(metavar="A,B", help="The input columns; all others if not given.")]
_LeaveOut = Annotated[str, typer.Option(metavar="A,B", help="Columns that are no inputs.")]
_User = Annotated[str, typer.Option(metavar="COLUMN", help="Whose each record is, where the unit is the user.")]
_Identity = Annotated[str, typer.Option(metavar="A,B", help="What a record is committed by; all of it if not given.")]
_Values = Annotated[list[str] | None, typer.Option(metavar="COLUMN=A,B", help="The values of a text column.")]
_Missing = Annotated[list[str] | None, typer.Option(metavar="COLUMN=NUMBER", help="What an empty cell counts as.")]
_DataKey = Annotated[Path | None, typer.Option(metavar="FILE", help="The data key's file, made if it is not there.")]
_CommitmentKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The key of commitments, made if not there: beside the folder by default."),
]
_Join = Annotated[str, typer.Option(metavar="A,B", help="The columns that a clean room joins the table by.")]
_JoinKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The key of a join, made if not there: all its providers use the same one."),
]
_NoCommitments = Annotated[bool, typer.Option("--no-commitments", help="Make no commitments.")]
_Teachers = Annotated[
    int, typer.Option(metavar="K", help="Warn of fewer units than K teachers, and of users in two chunks.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
COMMITMENT_KEY = "commitments.key"
_TYPED = {"key": "--key", "commitment-key": "--commitment-key", "join-key": "--join-key"}


@group.command(
    "patients.csv did:web:hospital.example/patients/2026 --target diagnosis --classes B,M --out 2026",
    "scans.npz did:web:hospital.example/scans/2026 --out scans-2026",
    note="Nothing is sent. FOLDER/share is for others: sealed records and commitments. FOLDER/secret stays here: the "
    "data key, and a report of what the file holds. docs/data-format.md describes the format.",
)
def seal(  # noqa: PLR0913, PLR0917 - each an option
    file: _File,
    partition: _Ref,
    out: _Out,
    schema: _Schema = None,
    target: _Target = "",
    target_kind: _Kind = "",
    classes: _Classes = "",
    inputs: _Inputs = "",
    leave_out: _LeaveOut = "",
    user: _User = "",
    identity: _Identity = "",
    values: _Values = None,
    missing: _Missing = None,
    key: _DataKey = None,
    commitment_key: _CommitmentKey = None,
    join: _Join = "",
    join_key: _JoinKey = None,
    teachers: _Teachers = 0,
    *,
    no_commitments: _NoCommitments = False,
    as_json: _AsJson = False,
) -> None:
    """Seal a provider's records for one partition: sealed file, key, commitments and a report."""
    from client.dataset_files.seal import seal_dataset
    from ledger.domain.command import parse_ref
    from ledger.wire.malformed import Malformed

    with errors_reported(as_json=as_json, fields=_TYPED):
        ref = parse_ref(partition, "PARTITION")
        if no_commitments and commitment_key is not None:
            raise Malformed("--commitment-key", "is given together with --no-commitments: leave out one of the two")
        given = (target, target_kind, classes, inputs, leave_out, user, identity, values, missing)
        described = _schema(schema, *given)
        if join and schema is not None:
            raise Malformed("--join", "is given together with --schema, which holds it: leave out one of the two")
        records = _records(file, replace(described, join=_split_names(join, "--join")) if join else described, join_key)
        committing = None if no_commitments else commitment_key or out.parent / COMMITMENT_KEY
        made = seal_dataset(records, ref, out, key, committing)
    _print(made, ref, as_json=as_json)
    if teachers:
        _warn_of_chunks(made, teachers)


@group.command(
    "patients.csv --target diagnosis --classes B,M --identity patient --out commitments-2026",
    "scans.npz --identity patients --commitment-key commitments.key --out commitments-scans",
    note="Nothing is sent. Use the same key for all partitions of a provider: under another, old records go unnoticed.",
)
def commit(  # noqa: PLR0913, PLR0917 - each an option
    file: _File,
    out: _Out,
    schema: _Schema = None,
    target: _Target = "",
    target_kind: _Kind = "",
    classes: _Classes = "",
    inputs: _Inputs = "",
    leave_out: _LeaveOut = "",
    user: _User = "",
    identity: _Identity = "",
    values: _Values = None,
    missing: _Missing = None,
    commitment_key: _CommitmentKey = None,
    *,
    as_json: _AsJson = False,
) -> None:
    """Make commitments to a provider's records, as a policy may require of a partition."""
    from client.dataset_files.seal import commit_records

    with errors_reported(as_json=as_json, fields=_TYPED):
        given = (target, target_kind, classes, inputs, leave_out, user, identity, values, missing)
        records = _records(file, _schema(schema, *given))
        made = commit_records(records, commitment_key or out.parent / COMMITMENT_KEY, out)
    _print(made, "", as_json=as_json)


def _records(file: Path, schema: RecordSchema, join_key: Path | None = None) -> Records:
    from client.dataset_files.seal import open_records

    with _fields_as_options():
        return open_records(file, schema, join_key)


@contextmanager
def _fields_as_options() -> Iterator[None]:
    """A column is named by an option or in the schema: as an option it has two dashes. Raises: Malformed."""
    from ledger.wire.malformed import Malformed

    try:
        yield
    except Malformed as error:
        raise Malformed(_OPTIONS.get(error.field, error.field), error.rule) from None


_NAMES = ("target", "classes", "inputs", "join", "leave_out", "user", "identity", "values", "missing")
_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in _NAMES}


def _schema(  # noqa: PLR0913, PLR0917 - each an option
    path: Path | None,
    target: str,
    target_kind: str,
    classes: str,
    inputs: str,
    leave_out: str,
    user: str,
    identity: str,
    values: list[str] | None,
    missing: list[str] | None,
) -> RecordSchema:
    """The schema of the options, or of the file. Raises: Malformed, OSError."""
    from client.dataset_files.declared.column_rule import signed_number
    from client.dataset_files.record_schema import KINDS, RecordSchema
    from ledger.wire.malformed import Malformed

    if path is not None:
        if any((target, target_kind, classes, inputs, leave_out, user, identity, values, missing)):
            raise Malformed("--schema", "is given together with options that it holds: leave out one of the two")
        return RecordSchema.load(path)
    if target_kind and target_kind not in KINDS:
        raise Malformed("--target-kind", f"must be one of {', '.join(KINDS)}")
    fills = {name: signed_number(number, "--missing") for name, number in _pairs(missing, "--missing")}
    with _fields_as_options():
        return RecordSchema(
            target=(target,) if target else (),
            target_kind=target_kind or "integer",
            classes=_split_names(classes, "--classes"),
            inputs=_split_names(inputs, "--inputs"),
            leave_out=_split_names(leave_out, "--leave-out"),
            user=user,
            identity=_split_names(identity, "--identity"),
            values={name: _split_names(listed, "--values") for name, listed in _pairs(values, "--values")},
            missing=fills,
        )


def person_columns(person: str) -> tuple[str, ...]:
    """The columns that say whose a record is. Raises: Malformed."""
    return _split_names(person, "--person")


def _split_names(text: str, option: str) -> tuple[str, ...]:
    from ledger.wire.malformed import Malformed

    names = tuple(part.strip() for part in text.split(",")) if text else ()
    if "" in names or len(set(names)) != len(names):
        raise Malformed(option, "must be different names between commas")
    return names


def _pairs(given: list[str] | None, option: str) -> list[tuple[str, str]]:
    from ledger.wire.malformed import Malformed

    pairs = [text.rpartition("=") for text in given or ()]
    if any(not name or not value for name, _, value in pairs):
        raise Malformed(option, "must be COLUMN=..., as in its help")
    return [(name, value) for name, _, value in pairs]


def _warn_of_chunks(made: SealedDataset, teachers: int) -> None:
    """Warn the provider, and no one else, of teachers without a record, and of users in several chunks."""
    users = made.report.get("users")
    units = users["count"] if isinstance(users, dict) else made.report["records"]
    if isinstance(units, int) and units < teachers:
        of = "users" if isinstance(users, dict) else "records"
        say(f"{units} {of} are fewer than {teachers} teachers: those without any give a fixed answer", err=True)
    most = users["records_of_one_max"] if isinstance(users, dict) else 1
    if isinstance(most, int) and most > 1:
        rule = "an ensemble with chunks_by = 'user' keeps them in one chunk, any other has them in as many"
        say(f"a user has up to {most} records: {rule}", err=True)


def _in_words(declared: Any) -> str:  # noqa: ANN401 - JSON
    """What was declared: of which columns, and how many records."""
    columns = [*declared.get("columns", {}), *(["the target"] if "target" in declared else [])]
    words = [f"which numbers {', '.join(columns)} may hold"] if columns else []
    words += [f"at most {declared['records_max']} records"] if "records_max" in declared else []
    words += [f"at most {declared['person_records_max']} of one person"] if "person_records_max" in declared else []
    return "; ".join(words)


def _print(made: SealedDataset, ref: str, *, as_json: bool) -> None:
    commitments = [{"document": digest, "file": str(path)} for path, digest in made.commitments]
    if as_json:
        print_json(
            {"commitments": commitments, "folder": str(made.folder), "key": str(made.data_key), "report": made.report}
        )
        return
    say(f"{made.folder}: {made.report['records']} records{f' sealed for {ref}' if ref else ''}")
    if declared := made.report.get("declared"):
        say(f"  declared, and a clean room holds the records to it: {_in_words(declared)}")
    for commitment in commitments:
        digest = f", SHA-256 {commitment['document']}" if is_verbose() else ""
        say(f"  commitments in {commitment['file']}{digest}")
    if ref:
        say(f"  data key in {made.data_key}: for your key store; no one else may read it")
        say(f"  report in {made.folder / 'secret' / 'report.json'}: computed without noise, for you alone")
        count, distinct = made.report["records"], made.report.get("commitments")
        if isinstance(count, int) and isinstance(distinct, int) and distinct < count:
            # A policy that requires commitments wants one for each record that the partition states.
            say(f"  records that equal others: {count - distinct}; --identity COLUMN distinguishes people")
            count = distinct
        say("Next: open the partition (`epsilon dataset open-partition`) with a budget that you decide on; its file")
        say(f'says "records": {count}, or fewer if the number is no one else\'s business.')
