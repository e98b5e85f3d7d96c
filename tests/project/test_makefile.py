"""The Makefile tells what it does, and names the tool that is missing before it makes anything."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def test_help_lists_every_target() -> None:
    """Each target that people use stands in the help, which is the default."""
    done = _make(path=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    listed = " ".join(line.split()[1] for line in done.stdout.splitlines())
    wanted = (
        "help demo depa test unit kernels check docs pictures openapi bench bench-training bench-gpu bench-book "
        "datasets utility mutants soak lock clean"
    )
    assert listed == wanted


@pytest.mark.parametrize(
    ("missing", "advice"),
    [
        ("git", "git is missing: apt install git"),
        ("python3", "python3 is missing: apt install python3 python3-venv"),
    ],
)
def test_a_missing_tool_is_named(missing: str, advice: str, tmp_path: Path) -> None:
    """The tool and the command that brings it, in one line."""
    for tool in {"sh", "git", "python3"} - {missing}:
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    done = _make("tools", path=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == f"{advice}\n"


def test_make_unit_runs_the_tests_of_the_pure_packages() -> None:
    """Each that the import contract "pure" lists, but for one file that has no folder of tests; and no other."""
    text = (HOME / "Makefile").read_text(encoding="utf-8")
    unit = text.partition("UNIT   :=")[2].partition("TEST_CPU_S")[0]
    named = {
        f"{room}.{name}"
        for room, names in re.findall(r"addprefix tests/(\w+)/,([\w ]+)", unit)
        for name in names.split()
    }
    named |= {".".join(file.split("/")[:2]) for file in re.findall(r" tests/(\w+/\w+/test_\w+\.py)", unit)}
    contracts = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    pure = next(set(one["source_modules"]) for one in contracts if one["id"] == "pure")
    assert named == pure - {"ledger.verifier"}


def _make(*targets: str, path: str) -> subprocess.CompletedProcess[str]:
    """A make of its own, even when another make runs the tests: nothing of that one's environment."""
    return subprocess.run(
        [str(shutil.which("make")), *targets],
        capture_output=True,
        text=True,
        check=False,
        cwd=HOME,
        env={"PATH": path},
    )
