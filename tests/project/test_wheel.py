"""The wheel that is built holds the whole project, and works where nothing else of it is."""

import os
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
PACKAGES: list[str] = tomllib.loads((HOME / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
    "wheel"
]["packages"]
WHERE = "import importlib, sys; print(importlib.import_module(sys.argv[1]).__file__)"


@dataclass(frozen=True)
class Installed:
    """A wheel, and a fresh environment that holds it and sees the libraries it depends on."""

    wheel: Path
    home: Path

    def run(self, command: str, *arguments: str) -> str:
        """Run a command of the environment, outside the source tree, and give what it prints."""
        done = self.ended(command, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ended(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The same, however it ends."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.home / "bin" / command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.home,
            env={**environment, "COLUMNS": "100"},
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build the wheel and install it; libraries come from the test environment, our tree does not."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist"))
    (wheel,) = (folder / "dist").glob("*.whl")
    home = folder / "environment"
    venv.create(home)
    python = str(home / "bin" / "python")
    _run(
        *(sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"),
        *("install", "--quiet", "--no-index", "--no-deps", str(wheel)),
    )
    # Named in a .pth file, a folder's own .pth files are not read: the editable install stays unseen.
    (site_packages,) = home.glob("lib/python*/site-packages")
    (site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(wheel, home)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_comes_from_the_wheel(installed: Installed, package: str) -> None:
    """Every package imports, and from the new environment."""
    assert Path(installed.run("python", "-c", WHERE, package).strip()).is_relative_to(installed.home)


def test_the_command_runs(installed: Installed) -> None:
    """The wheel's `epsilon` shows its help, with a command of each room that brings one."""
    shown = installed.run("epsilon", "--help")
    assert "Usage: epsilon" in shown


def test_a_ledger_runs_without_pytorch(installed: Installed, tmp_path: Path) -> None:
    """A provider seals a table, and `epsilon up` serves: only training needs PyTorch, and says so."""
    (site_packages,) = installed.home.glob("lib/python*/site-packages")
    # All libraries but PyTorch: a module that is only hidden is one that others believe to be there.
    (tmp_path / "libraries").mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if not one.name.startswith("torch"):
            (tmp_path / "libraries" / one.name).symlink_to(one)
    named = site_packages / "libraries.pth"
    before = named.read_text()
    named.write_text(f"{tmp_path / 'libraries'}\n")
    try:
        quote, charge = _quoted(installed, tmp_path)
        assert "The run would be admitted." in quote
        for words in (("train",), ("job", "check"), ("evaluate",), ("release",), ("statistics",)):
            done = installed.ended("epsilon", *words, charge)
            assert (done.returncode, "pip install 'epsilon-ledger[train]'" in done.stderr) == (2, True), words
    finally:
        named.write_text(before)


@pytest.mark.soak
def test_pip_brings_all_that_a_ledger_needs(tmp_path: Path) -> None:
    """Into an environment with nothing but pip, from the package index: the wheel serves, seals and quotes."""
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    fresh = Installed(wheel, home)
    assert Path(fresh.run("python", "-c", WHERE, "httpx").strip()).is_relative_to(home)
    assert "The run would be admitted." in _quoted(fresh, tmp_path)[0]


def _quoted(installed: Installed, place: Path) -> tuple[str, str]:
    """What a quote says that a consumer asks of `epsilon up`, all parties played; and the file of its charge."""
    (place / "table.csv").write_text("age,ill\n" + "41,0\n52,1\n" * 60)
    command = [str(installed.home / "bin" / "epsilon"), "up", "first", "--port", "0", "--issuer-port", "0"]
    up = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert up.stdout is not None
    try:
        assert any(line.endswith("until interrupted.\n") for line in up.stdout), up.wait()
        ref, folder = "did:web:tdp.localhost/example/first", place / "first"
        tdp, tdc, contract = (str(folder / name) for name in ("tdp.toml", "tdc.toml", "contract.yaml"))
        sealed = ("--target", "ill", "--out", str(place / "sealed"))
        installed.run("epsilon", "dataset", "seal", str(place / "table.csv"), ref, *sealed)
        installed.run("epsilon", "dataset", "register", tdp, str(folder / "dataset.yaml"))
        own = ("--target", "outcome", "--identity", "person", "--out", str(place / "made"))
        installed.run("epsilon", "dataset", "commit", str(folder / "records.csv"), *own)
        made = str(place / "made" / "share" / "commitments-1.bin")
        opened = (tdp, str(folder / "partition.json"), "--commitments", made)
        installed.run("epsilon", "dataset", "open-partition", *opened)
        (place / "tdp.jws").write_text(installed.run("epsilon", "contract", "sign", tdp, contract))
        installed.run("epsilon", "contract", "enter", tdc, contract, "--signature", str(place / "tdp.jws"))
        charge = str(folder / "charge.json")
        return installed.run("epsilon", "quote", tdc, charge, "--contract", contract), charge
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate()
        assert up.returncode == 0


def test_the_wheel_holds_every_file_of_its_packages(installed: Installed) -> None:
    """No file of a package is left behind, and nothing else is shipped."""
    with zipfile.ZipFile(installed.wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    there = {
        path.relative_to(HOME).as_posix()
        for package in PACKAGES
        for path in (HOME / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == there


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HOME)
    assert done.returncode == 0, done.stdout + done.stderr
