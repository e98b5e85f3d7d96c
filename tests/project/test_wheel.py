"""The wheel that is built holds the whole project, and works where nothing else of it is."""

import os
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
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [self.home / "bin" / command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.home,
            env={**environment, "COLUMNS": "100"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


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
