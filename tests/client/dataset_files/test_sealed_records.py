"""Sealed records: what goes in comes out, anywhere in the file; with one byte changed nothing does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from client.dataset_files import sealed_records
from client.dataset_files.sealed_records import MAGIC, RecordLayout, Rows, SealedRecords, write_sealed
from client.dataset_files.stored_partition import StoredPartition
from client.keys.data_encryption import encrypt
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

KEY, REF = bytes(range(32)), "did:web:h.example/d/q3"
DTYPE = np.dtype([("inputs", "<f4", (3,)), ("targets", "<i8"), ("mask", "|u1", (2, 2))])


def _rows(count: int) -> Rows:
    rows = np.zeros(count, DTYPE)
    rows["inputs"], rows["targets"] = np.arange(3 * count).reshape(count, 3) / 7, np.arange(count)
    rows["mask"] = np.arange(count).reshape(-1, 1, 1) % 251
    return rows


def _sealed(path: Path, rows: Rows, cuts: list[int] | None = None) -> SealedRecords:
    parts = np.split(rows, sorted(cuts or []))
    with path.open("wb") as file:
        assert write_sealed(file, KEY, REF, RecordLayout(DTYPE, ("a", "b", "c"), ("no", "yes")), parts) == len(rows)
    return _opened(path)


def _opened(path: Path, key: bytes = KEY, ref: str = REF) -> SealedRecords:
    found = StoredPartition(path).open(key, ref)
    assert isinstance(found, SealedRecords)
    return found


@given(st.integers(0, 40), st.lists(st.integers(0, 40), max_size=4), st.data())
def test_records_come_back_from_any_place(
    tmp_path_factory: pytest.TempPathFactory, count: int, cuts: list[int], data: st.DataObject
) -> None:
    """However they came in batches, and across frames of seven records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed_records, "FRAME_BYTES", 7 * DTYPE.itemsize)
        rows = _rows(count)
        found = _sealed(tmp_path_factory.mktemp("sealed") / "r", rows, [min(one, count) for one in cuts])
        assert len(found) == count
        assert (found.layout.columns, found.layout.classes) == (("a", "b", "c"), ("no", "yes"))
        for name, array in found.arrays().items():
            assert np.array_equal(array, rows[name])
        places = data.draw(st.lists(st.integers(0, count - 1), max_size=12)) if count else []
        drawn = found.rows(np.array(places, dtype=np.int64))
        assert drawn.tobytes() == rows[np.array(places, dtype=np.int64)].tobytes()


def test_a_changed_byte_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever: no file gives other records than were sealed."""
    monkeypatch.setattr(sealed_records, "FRAME_BYTES", 7 * DTYPE.itemsize)
    path = tmp_path / "r"
    _sealed(path, _rows(20))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        with pytest.raises(Malformed, match="does not open with the data key"):
            _opened(path).arrays()


def test_a_frame_opens_in_its_own_place_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that change places, files that are cut, another partition, another key: nothing opens."""
    monkeypatch.setattr(sealed_records, "FRAME_BYTES", 7 * DTYPE.itemsize)
    path = tmp_path / "r"
    _sealed(path, _rows(21))
    whole, size, head = path.read_bytes(), 7 * DTYPE.itemsize + 16, len(MAGIC) + 32
    first, second = whole[head : head + size], whole[head + size : head + 2 * size]
    for forged in (
        whole.replace(first + second, second + first),
        whole.replace(second, b""),
        whole.replace(first, first + first),
        *(whole[:cut] for cut in range(len(whole))),
    ):
        path.write_bytes(forged)
        with pytest.raises(Malformed, match="does not open with the data key"):
            _opened(path).arrays()
    path.write_bytes(whole)
    for key, ref in ((bytes(32), REF), (KEY, f"{REF}-other")):
        with pytest.raises(Malformed, match="does not open with the data key"):
            _opened(path, key, ref)


INPUTS: dict[str, Any] = {"dtype": "<f4", "name": "inputs", "shape": [3]}


@pytest.mark.parametrize(
    "arrays",
    [
        [INPUTS, INPUTS],
        [{**INPUTS, "shape": [1 << 26, 1 << 26]}],
        [{**INPUTS, "shape": [1] * 70}],
        [{**INPUTS, "shape": [1 << 26] * 3}],
    ],
    ids=["a name twice", "too large", "too many dimensions", "larger than a number"],
)
def test_a_description_of_no_record_does_not_open(tmp_path: Path, arrays: list[c.Json]) -> None:
    """Sealed by its provider with the right key: a rule is named, so that a run takes the file for one not opened."""
    described: c.Object = {"arrays": arrays, "frame_records": 4, "kind": "sealed_records", "records": 0, "v": 1}
    salt = bytes(32)
    key = HKDF(SHA256(), 32, salt, f"epsilon-records/1 {REF}".encode()).derive(KEY)
    sealed = AESGCM(key).encrypt(b"\xff" * 12, c.dump(described), None)
    (tmp_path / "r").write_bytes(MAGIC + salt + sealed + len(sealed).to_bytes(4, "big"))
    with pytest.raises(Malformed, match=r"^arrays: make no record: give each a name of its own"):
        _opened(tmp_path / "r")


def test_one_record_is_read_without_the_others(tmp_path: Path) -> None:
    """A draw reads the frames that hold it: of a file of a hundred frames, two."""
    rows = _rows(100 * RecordLayout(DTYPE).frame_records)
    _sealed(tmp_path / "r", rows)
    stored, read = StoredPartition(tmp_path / "r"), list[int]()

    class Counted:
        size = stored.size

        @staticmethod
        def read(at: int, count: int) -> bytes:
            read.append(count)
            return stored.read(at, count)

    found = SealedRecords(Counted(), KEY, REF)
    read.clear()
    places = np.array([len(rows) - 1, 5, 6, 7])
    assert found.rows(places).tobytes() == rows[places].tobytes()
    assert len(read) == 2
    with pytest.raises(IndexError):
        found.rows(np.array([len(rows)]))


def test_the_length_tells_the_number_of_records_only_to_a_frame(tmp_path: Path) -> None:
    """One record more within a frame leaves the file as long, but for a digit of the sealed description."""
    sizes = set()
    for count in (100, 101, 999):
        _sealed(tmp_path / "r", _rows(count))
        sizes.add((tmp_path / "r").stat().st_size)
    assert len(sizes) == 1


def test_an_archive_in_one_piece_opens_as_before(tmp_path: Path) -> None:
    """The form of data at rest that was there first."""
    (tmp_path / "old").write_bytes(encrypt(KEY, REF, b"PK records"))
    assert StoredPartition(tmp_path / "old").open(KEY, REF) == b"PK records"
    with pytest.raises(Malformed, match="does not open"):
        StoredPartition(tmp_path / "old").open(bytes(32), REF)


@pytest.mark.parametrize(
    ("head", "clear"),
    [
        (b"age,weight\n30,70\n", True),
        ("é".encode() * 256, True),
        (b"," + "é".encode() * 256, True),
        (b"PK\x03\x04\x14\x00\xff\xfe", True),
        (b"PAR1\x15\x04\xff\xfe", True),
        (b"\x93NUMPY\x01\x00", True),
        (b"", True),
        (b"epsilon-commitments/1\n" + bytes(range(256)), True),
        (MAGIC + b"some ascii", False),
        (bytes(range(256)), False),
        # A character that is cut where the file ends is no text's.
        (b"some text" + "é".encode()[:1], False),
    ],
)
def test_what_was_never_sealed_is_seen_without_a_key(tmp_path: Path, head: bytes, clear: bool) -> None:  # noqa: FBT001 - a case's outcome
    """Text, where the looked at part ends inside a character too, archives and tables; never what is sealed."""
    (tmp_path / "file").write_bytes(head)
    assert StoredPartition(tmp_path / "file").is_in_the_clear() is clear


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    """Before any key is needed."""
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        StoredPartition(tmp_path)
