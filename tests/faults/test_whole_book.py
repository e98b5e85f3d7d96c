"""A Hypothesis state machine drives the whole book against a model of it written another way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.faults.machine import TALLY, WholeBook
from tests.faults.scene import Scene, open_scene

COMMANDS: Final = int(os.environ.get("EPSILON_SOAK_COMMANDS", "100000"))


def _machine(folder: Path) -> type[WholeBook]:
    """Machines on SQLite, each with a copy of one founded book."""
    template = folder / "template"
    template.mkdir()
    with open_scene(template):
        pass
    numbers = count()

    def begin() -> tuple[Scene, Callable[[], None]]:
        home = folder / str(next(numbers))
        home.mkdir()
        shutil.copyfile(template / "book.sqlite", home / "book.sqlite")
        scene = Scene(home)

        def end() -> None:
            scene.book.close()
            shutil.rmtree(home)

        return scene, end

    return type("WholeBookOnSqlite", (WholeBook,), {"begin": staticmethod(begin)})


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )


def test_the_book_says_what_the_model_says(tmp_path: Path) -> None:
    """The same few books every time; every kind of answer is among what they are given."""
    before = TALLY["commands"]
    run_state_machine_as_test(_machine(tmp_path), settings=_settings(6, 30))
    assert TALLY["commands"] - before > 300


@pytest.mark.soak
def test_a_hundred_thousand_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until as many commands were sent as EPSILON_SOAK_COMMANDS says."""
    machine, first, rounds = _machine(tmp_path), TALLY["commands"], 0
    while TALLY["commands"] - first < COMMANDS:
        rounds += 1
        test = seed(rounds)(machine)
        run_state_machine_as_test(test, settings=settings(_settings(50, 40), derandomize=False))
    with capsys.disabled():
        print(f"\nwhole book: {rounds} seeds from 1 on, {dict(sorted(TALLY.items()))}")  # noqa: T201 - the figures
