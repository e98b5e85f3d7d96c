"""A Hypothesis state machine drives the whole book against a model of it written another way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, takewhile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.factories.stored import ENGINES
from tests.faults.copies import Copies
from tests.faults.machine import TALLY, WholeBook
from tests.faults.modelled_world import ModelledWorld

COMMANDS: Final = int(os.environ.get("EPSILON_SOAK_COMMANDS", "100000"))

FEW: Final = {"sqlite": (12, 1_000), "postgresql": (3, 250)}
"""By engine, how many books are driven in every run of the tests, and how many commands that is at least."""


@pytest.fixture(params=ENGINES)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[type[WholeBook]]:
    """Machines on one engine, each with a copy of one founded book."""
    numbers = count()
    with ExitStack() as stack:
        copies = Copies(tmp_path, request.param, stack, ModelledWorld)

        def begin() -> tuple[ModelledWorld, Callable[[], None]]:
            of_one, folder = ExitStack(), tmp_path / str(next(numbers))
            world = ModelledWorld(folder, of_one.enter_context(copies.one(folder)))

            def end() -> None:
                with of_one:
                    world.book.close()

            return world, end

        yield type("WholeBook", (WholeBook,), {"begin": staticmethod(begin), "engine": request.param})


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


def test_the_book_says_what_the_model_says(machine: type[WholeBook]) -> None:
    """The same few books every time; every kind of answer is among what they are given."""
    before, books, least = TALLY["commands"], *FEW[machine.engine]
    run_state_machine_as_test(seed(11)(machine), settings=settings(_settings(books, 16), derandomize=False))
    assert TALLY["commands"] - before > least


@pytest.mark.soak
def test_a_hundred_thousand_commands(machine: type[WholeBook], tell: Callable[[str], None]) -> None:
    """Until as many commands were sent as EPSILON_SOAK_COMMANDS says, from a seed that EPSILON_SOAK_SEED sets."""
    TALLY.clear()
    start = int(os.environ.get("EPSILON_SOAK_SEED", "1"))
    for number in takewhile(lambda _: TALLY["commands"] < COMMANDS, count(start)):
        run_state_machine_as_test(seed(number)(machine), settings=settings(_settings(20, 40), derandomize=False))
        tell(f"whole book, seeds {start} to {number}: {dict(sorted(TALLY.items()))}")
    assert TALLY["commands"] >= COMMANDS
    assert TALLY["charge pending"] > TALLY["commands"] / 100
