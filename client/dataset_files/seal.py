"""Sealing a data set: from a provider's file to a folder with what it may share and what it keeps secret.

    FOLDER/share/records.sealed       the records, encrypted; for clean rooms
    FOLDER/share/commitments-1.bin    commitments to them, where they are made; for the service
    FOLDER/secret/data.key            the data key, 32 bytes; for the provider's key store
    FOLDER/secret/report.json         what sealing saw; for the provider alone

The folder gets its name when all of it is written and synchronised, or never.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from client.dataset_files.array_archive import ArchiveRecords
from client.dataset_files.record_commitments import KEY_BYTES, RecordCommitments, read_or_make_key
from client.dataset_files.record_encoding import Batch, TableRecords
from client.dataset_files.record_schema import SCHEMA_FILE, RecordSchema
from client.dataset_files.seal_report import SealReport
from client.dataset_files.sealed_records import RecordLayout, Rows, write_sealed
from client.dataset_files.table_chunks import open_table
from ledger.files.atomic_file import create_file
from ledger.files.fresh_folder import PRIVATE_FOLDER, fresh_folder
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

SEALED: Final = Path("share", "records.sealed")
DATA_KEY: Final = Path("secret", "data.key")
REPORT: Final = Path("secret", "report.json")
ARCHIVE_SUFFIX: Final = ".npz"


class Records(Protocol):
    """Records as they are sealed, of whatever file."""

    layout: RecordLayout

    def batches(self) -> Iterator[Batch]:
        """All of them, in order. Raises: Malformed, OSError."""


@dataclass(frozen=True, slots=True)
class SealedDataset:
    """What was made. ``commitments`` are the documents' files, with the SHA-256 of each; private: ``report``."""

    folder: Path
    data_key: Path
    commitments: tuple[tuple[Path, str], ...]
    report: c.Object


def open_records(path: Path, schema: RecordSchema, join_key: Path | None = None) -> Records:
    """The records of an archive, a table, or a folder of tables. Raises: Malformed, OSError.

    Args:
        path: a folder's own ``schema.toml`` counts where ``schema`` names no target.
        schema: of an archive, whose arrays speak for themselves, identity, person and what is declared are used.
        join_key: the file of the key that the providers of a join share, made if it is not there; where the schema
            says what a table is joined by.
    """
    if path.suffix.lower() == ARCHIVE_SUFFIX and not path.is_dir():
        return ArchiveRecords(path, schema)
    if not schema.target and (path / SCHEMA_FILE).is_file():
        schema = RecordSchema.load(path / SCHEMA_FILE)
    return TableRecords(
        open_table(path), schema, None if join_key is None else read_or_make_key(join_key, "join-key")[0]
    )


class Beside(Protocol):
    """What is made of a slice's records while they are sealed, beside what is made of every partition's."""

    def pass_on(self, batch: Batch, key: bytes) -> Batch:
        """The records that are sealed, of some; ``key`` is that of commitments. Raises: Malformed."""

    def files(self, seen: SealReport) -> dict[Path, bytes]:
        """More files, by their place in the folder; commitments are ``share/*.bin``. Raises: Malformed."""


def seal_dataset(  # noqa: PLR0913 - what is sealed, where to, and by which keys
    records: Records,
    ref: str,
    folder: Path,
    data_key: Path | None,
    commitment_key: Path | None,
    *,
    beside: Beside | None = None,
) -> SealedDataset:
    """Seal records for one partition.

    Args:
        records: what is sealed.
        ref: ``provider/dataset/partition``, to which the sealed file is bound.
        folder: is made; there is none of its name yet.
        data_key: the file of the data key, made if it is not there; None: a fresh key in the folder.
        commitment_key: the same of the key of commitments; None: no commitments are made.
        beside: of a stream's slice, what is looked at and made beside that.

    Raises:
        Malformed: for records that cannot be sealed. FileExistsError: for a folder that is there. OSError.
        Then neither the folder nor a key that was made for it is left.
    """
    with _keys(data_key, commitment_key) as (key, committing), _new_folder(folder) as made:
        commitments, report = RecordCommitments(committing or b""), SealReport(records.layout)

        def rows() -> Iterator[Rows]:
            for read in records.batches():
                batch = read if beside is None or committing is None else beside.pass_on(read, committing)
                report.add(batch.rows)
                if committing is not None:
                    commitments.add(batch.identities, (identity for identity, _ in batch.spelled))
                yield batch.rows

        with (made / SEALED).open("xb") as file:
            write_sealed(file, key, ref, records.layout, rows())
            file.flush()
            os.fsync(file.fileno())
        if not report.records:
            raise Malformed("records", "are none: the file has no record after its first line")
        if data_key is None:
            create_file(made / DATA_KEY, key)
        documents = [*commitments.documents()] if committing is not None else []
        by_file = {_document(number): document for number, document in enumerate(documents, start=1)}
        by_file |= {} if beside is None else beside.files(report)
        for name, content in by_file.items():
            create_file(made / name, content)
        shown = report.to_json(len(commitments) if committing is not None else None)
        create_file(made / REPORT, c.dump(shown) + b"\n")
    files = tuple((folder / name, c.digest(document)) for name, document in by_file.items() if name.suffix == ".bin")
    return SealedDataset(folder, data_key or folder / DATA_KEY, files, shown)


def commit_records(records: Records, commitment_key: Path, folder: Path) -> SealedDataset:
    """Make the commitments alone, in a folder that is made. Raises: as :func:`seal_dataset`."""
    with _keys(None, commitment_key) as (_, committing), _new_folder(folder) as made:
        commitments, report = RecordCommitments(committing or b""), SealReport(records.layout)
        for batch in records.batches():
            report.add(batch.rows)
            commitments.add(batch.identities, (identity for identity, _ in batch.spelled))
        documents = [*commitments.documents()]
        if not documents:
            raise Malformed("records", "are none: the file has no record after its first line")
        for number, document in enumerate(documents, start=1):
            create_file(made / _document(number), document)
        (made / REPORT.parent).rmdir()
    files = tuple(
        (folder / _document(number), c.digest(document)) for number, document in enumerate(documents, start=1)
    )
    return SealedDataset(folder, commitment_key, files, {"commitments": len(commitments), "records": report.records})


def _document(number: int) -> Path:
    return Path("share", f"commitments-{number}.bin")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder with its two parts, private, which gets its name at the end."""
    with fresh_folder(folder, "--out") as made:
        for part in ("share", "secret"):
            (made / part).mkdir(mode=PRIVATE_FOLDER)
        yield made


@contextmanager
def _keys(data_key: Path | None, commitment_key: Path | None) -> Iterator[tuple[bytes, bytes | None]]:
    """Data key, fresh where no file is named, and the key of commitments; files made now go if the block fails."""
    made: list[Path] = []

    def of(path: Path, field: str) -> bytes:
        key, fresh = read_or_make_key(path, field)
        made.extend([path] if fresh else [])
        return key

    try:
        yield (
            of(data_key, "key") if data_key else os.urandom(KEY_BYTES),
            of(commitment_key, "commitment-key") if commitment_key else None,
        )
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
