"""One person in two Unicode forms is one person, wherever a column says whose a record is."""

from __future__ import annotations

import hmac
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from client.dataset_files.record_commitments import MAGIC, PERSONS_MAGIC, RecordCommitments, read_values
from client.dataset_files.record_encoding import TableRecords
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import SEALED, commit_records, open_records, seal_dataset
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.slice_records import EarlierSlices, SliceRecords
from client.dataset_files.stored_partition import StoredPartition
from client.dataset_files.table_chunks import open_table
from ledger.wire.malformed import Malformed

REF = "did:web:hospital.example/patients/2026"
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "José") for form in ("NFC", "NFD"))
KEY = bytes(range(32))


def _table(folder: Path, *names: str) -> Path:
    """One file a record, as two programs write them."""
    folder.mkdir()
    for number, name in enumerate(names):
        (folder / f"{number}.csv").write_text(f"who,x,y\n{name},{number},0\n", encoding="utf-8")
    return folder


def _arrays(path: Path, out: Path, schema: RecordSchema, join_key: Path | None = None) -> dict[str, NDArray[Any]]:
    made = seal_dataset(open_records(path, schema, join_key), REF, out, None, None)
    found = StoredPartition(out / SEALED).open(made.data_key.read_bytes(), REF)
    assert isinstance(found, SealedRecords)
    return dict(found.arrays())


def test_a_user_has_the_records_of_both_forms(tmp_path: Path) -> None:
    """Other spellings stay other users: capitals, and compatibility forms."""
    names = (COMPOSED, DECOMPOSED, "JOSÉ", "Ｊosé")
    schema = RecordSchema(target=("y",), user="who", inputs=("x",))
    assert _arrays(_table(tmp_path / "t", *names), tmp_path / "out", schema)["users"].tolist() == [0, 0, 1, 2]


def test_an_identity_has_one_record_in_both_forms(tmp_path: Path) -> None:
    """The second is refused by name, as it is where both are spelled alike."""
    records = open_records(
        _table(tmp_path / "t", COMPOSED, DECOMPOSED), RecordSchema(target=("y",), identity=("who",), inputs=("x",))
    )
    with pytest.raises(Malformed, match="record 1 is of a person that another record has"):
        seal_dataset(records, REF, tmp_path / "out", None, None)


def test_two_tables_are_joined_whatever_the_form(tmp_path: Path) -> None:
    """The token is of the composed one."""
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    schema = RecordSchema(target=("y",), join=("who",), inputs=("x",))
    wanted = hmac.digest(KEY, f'join\n["{COMPOSED}"]'.encode(), "sha256")
    for number, name in enumerate((COMPOSED, DECOMPOSED)):
        arrays = _arrays(_table(tmp_path / f"t{number}", name), tmp_path / f"out{number}", schema, tmp_path / "key")
        assert arrays["join"].tobytes() == wanted


def _committed(folder: Path, name: str, key: Path) -> set[bytes]:
    schema = RecordSchema(target=("y",), identity=("who",), inputs=("x",))
    made = commit_records(open_records(_table(folder, name), schema), key, folder.with_suffix(".out"))
    assert made.report["commitments"] == 1
    return {value for path, _ in made.commitments for value in read_values(path.read_bytes())}


def test_commitments_know_the_commitments_of_before(tmp_path: Path) -> None:
    """Both forms share the composed one; what was committed to as spelled is found by a file that spells it so."""
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    before = {name: hmac.digest(KEY, f'identity\n["{name}"]'.encode(), "sha256") for name in (COMPOSED, DECOMPOSED)}
    assert _committed(tmp_path / "composed", COMPOSED, tmp_path / "key") == {before[COMPOSED]}
    assert _committed(tmp_path / "decomposed", DECOMPOSED, tmp_path / "key") == set(before.values())


@pytest.mark.parametrize("earlier", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("what", [b"identity", b"person"])
def test_a_slice_finds_whom_earlier_slices_committed_to(tmp_path: Path, earlier: str, what: bytes) -> None:
    """In the composed form, or as the file of before and this one spell it."""
    (tmp_path / "week" / "share").mkdir(parents=True)
    made = RecordCommitments(KEY, MAGIC if what == b"identity" else PERSONS_MAGIC)
    made.add([what + f'\n["{earlier}"]'.encode()])
    (document,) = made.documents()
    (tmp_path / "week" / "share" / "one.bin").write_bytes(document)
    slices = EarlierSlices({"week": tmp_path / "week"})
    seen = SliceRecords(slices, "", {}, appearances_max=1, records_min=1, leaves_out=True)
    schema = RecordSchema(target=("y",), identity=("who",), person=("who",), inputs=("x",))
    records = TableRecords(open_table(_table(tmp_path / "t", "Ana", DECOMPOSED)), schema)
    passed = [seen.pass_on(batch, KEY) for batch in records.batches()]
    assert (np.concatenate([batch.rows["inputs"] for batch in passed]).tolist(), seen.left_out) == ([[0]], 1)


def test_slices_that_spell_a_name_in_two_forms_are_both_counted(tmp_path: Path) -> None:
    """In one slice by the composed form and in one by the other, she has been in two."""
    for week, name in (("1", COMPOSED), ("2", DECOMPOSED)):
        (tmp_path / week / "share").mkdir(parents=True)
        made = RecordCommitments(KEY, PERSONS_MAGIC)
        made.add([f'person\n["{name}"]'.encode()])
        (document,) = made.documents()
        (tmp_path / week / "share" / "one.bin").write_bytes(document)
    slices = EarlierSlices({week: tmp_path / week for week in ("1", "2")})
    seen = SliceRecords(slices, "", {}, appearances_max=2, records_min=1, leaves_out=False)
    schema = RecordSchema(target=("y",), identity=("who",), person=("who",), inputs=("x",))
    records = TableRecords(open_table(_table(tmp_path / "t", DECOMPOSED)), schema)
    with pytest.raises(Malformed, match="is of a person who is in 2 slices already, of which the newest is 2"):
        [seen.pass_on(batch, KEY) for batch in records.batches()]
