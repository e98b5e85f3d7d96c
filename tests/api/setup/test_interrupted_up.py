"""Ctrl-C while `epsilon up` makes its folder: it ends with one sentence, and the next `up` takes the folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from api.setup import development_folder as development
from tests.api.setup import interrupted_up
from tests.api.setup.interrupted_up import NO_MOMENT
from tests.api.setup.recorded_kinds import MADE, recorded_kinds

NEW_PORTS: Final = ("--port", "0", "--issuer-port", "0")
FEW: Final = ("submit:call:3",)
"""In the middle of registering the parties, with a service that runs."""
MOMENTS: Final = (
    "_claim_folder:call:1",
    "claim:call:1",
    "create_file:return:1",
    "hold_folder:return:1",
    "complete:call:1",
    "signing_key:return:3",
    "write_verifier_key:call:1",
    "create_profile:call:1",
    "create_profile:return:3",
    "communicate:call:1",
    "complete:return:1",
    "_start:call:1",
    "run_server:call:1",
    "serving:return:1",
    "open:call:1",
    "open:return:1",
    "create_app:call:1",
    "serving:return:2",
    "run_server:return:1",
    "register_parties:call:1",
    "submit:call:1",
    "submit:return:1",
    "submit:return:4",
    "publish_policy:call:1",
    "write_policy:return:1",
    "put_document:return:1",
    "submit:call:5",
    "submit:return:5",
    "write_examples:call:1",
    "write_examples:return:1",
    "preload_pricing:return:1",
    "_summary:call:1",
)
"""Where each step begins or ends, in order, and moments inside of it."""
PARTS: Final = 40
"""A start is interrupted at the beginning of each of so many parts of it."""


def _up(place: Path, moment: str) -> subprocess.Popen[str]:
    ports = () if (place / "made" / development.MARK).exists() else NEW_PORTS
    command = [sys.executable, interrupted_up.__file__, moment, "up", "made", *ports]
    root = str(Path(interrupted_up.__file__).parents[3])
    return subprocess.Popen(
        command,
        cwd=place,
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _goes_on(place: Path) -> object:
    """What is on record once the next start has served and ended by Ctrl-C: all parties and one policy."""
    process = _up(place, NO_MOMENT)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.endswith("until interrupted.\n"):
            break
    else:
        raise AssertionError("".join(said))
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate()
    assert (process.returncode, "Traceback" in rest) == (0, False), rest
    assert not [*(place / "made").rglob("*.part")]
    return recorded_kinds(place / "made" / "book.sqlite")


def _interrupted(place: Path, moment: str) -> None:
    process = _up(place, moment)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "Traceback" not in said, said
    assert "Stopped. To go on: " in said.splitlines()[-1]
    assert "until interrupted" not in said


def test_each_moment_is_of_a_function_that_is_there() -> None:
    """One that was renamed would never be interrupted."""
    packages = (Path(interrupted_up.__file__).parents[3] / name for name in ("api", "client", "ledger"))
    source = "\n".join(path.read_text(encoding="utf-8") for package in packages for path in package.rglob("*.py"))
    defined = {"communicate", *re.findall(r"^ *def (\w+)\(", source, re.MULTILINE)}
    assert {moment.partition(":")[0] for moment in (*FEW, *MOMENTS)} <= defined


@pytest.mark.parametrize("moment", FEW)
def test_an_interrupted_start_goes_on(tmp_path: Path, moment: str) -> None:
    """Nothing is registered twice, and no file is left half-written."""
    _interrupted(tmp_path, moment)
    assert _goes_on(tmp_path) == MADE


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_start_interrupted_at_any_step_goes_on(tmp_path: Path, moment: str) -> None:
    """At its beginning, at its end, and inside."""
    _interrupted(tmp_path, moment)
    assert _goes_on(tmp_path) == MADE


@pytest.mark.soak
def test_starts_interrupted_after_any_step_go_on(tmp_path: Path) -> None:
    """Whatever the program was about, its imports too, and again while it ends; one folder takes all of it."""
    (tmp_path / "first").mkdir()
    steps = _steps(tmp_path / "first")
    for part in range(PARTS):
        process = _up(tmp_path, f"any:{2 + steps * part // PARTS}")
        said, _ = process.communicate(timeout=120)
        # A second interrupt, while Python ends, ends it as the signal does: a shell shows 130 then too.
        assert process.returncode in {0, 130, -signal.SIGINT}, (part, said)
        # Where Python drops an interrupt, while it frees an object, it says so; the next step ends it all the same.
        assert "Traceback" not in said or "Exception ignored" in said, (part, said)
    assert _goes_on(tmp_path) == MADE


def _steps(place: Path) -> int:
    """How many steps a first start takes until it waits."""
    process = _up(place, f"count:{place / 'steps'}")
    process.communicate(timeout=120)
    return int((place / "steps").read_text(encoding="ascii"))
