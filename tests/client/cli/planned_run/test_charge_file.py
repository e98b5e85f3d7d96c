"""The file of a charge and the words of a command line: each part from one of the two, and never from both."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from client.cli.planned_run.charge_file import Changes, read_charge
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.documents import PARTITION, plan

CONTRACT: Final = "ab" * 32
DEADLINE: Final = datetime(2026, 12, 2, tzinfo=UTC)
RUN: Final[c.Object] = {"partitions": [PARTITION], "plan": plan()}
LAPLACE: Final[c.Object] = {"kind": "mechanisms", "steps": []}


def _read(folder: Path, body: c.Object, changes: Changes) -> Any:  # noqa: ANN401 - JSON
    path = folder / "run.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    return read_charge(path, changes)


@pytest.mark.parametrize(
    ("body", "changes", "expected"),
    [
        ({}, Changes(CONTRACT), {"contract": CONTRACT}),
        ({"contract": CONTRACT}, Changes(), {"contract": CONTRACT}),
        ({"contract": CONTRACT}, Changes(CONTRACT), {"contract": CONTRACT}),
        ({}, Changes(CONTRACT, DEADLINE), {"contract": CONTRACT, "deadline": 1_796_169_600_000}),
        ({}, Changes(CONTRACT, noise="3"), {"contract": CONTRACT, "plan": {**plan(), "noise_multiplier": "3"}}),
        ({}, Changes(CONTRACT, steps=7), {"contract": CONTRACT, "plan": plan(7)}),
        ({}, Changes(CONTRACT, noise="3", steps=7), {"contract": CONTRACT, "plan": plan(7, "3")}),
        ({}, Changes(CONTRACT, partitions=("a/b/c",)), {"contract": CONTRACT, "partitions": ["a/b/c"]}),
    ],
)
def test_the_command_line_completes_the_file(
    body: c.Object, changes: Changes, expected: c.Object, tmp_path: Path
) -> None:
    """And changes the plan and the partitions; the rest stays as the file has it."""
    assert _read(tmp_path, {**RUN, **body}, changes) == {**RUN, **expected}


@pytest.mark.parametrize(
    ("body", "changes", "field"),
    [
        ({}, Changes(), "--contract"),
        ({}, Changes("no digest and no file"), "--contract"),
        ({"contract": "cd" * 32}, Changes(CONTRACT), "run.json: contract"),
        ({"deadline": 1}, Changes(CONTRACT, DEADLINE), "run.json: deadline"),
        ({"plan": LAPLACE}, Changes(CONTRACT, noise="3"), "--noise"),
        ({"plan": LAPLACE}, Changes(CONTRACT, steps=7), "--steps"),
        ({"plan": None}, Changes(CONTRACT, steps=7), "--steps"),
    ],
)
def test_what_contradicts_the_file_is_refused_as_it_was_typed(
    body: c.Object, changes: Changes, field: str, tmp_path: Path
) -> None:
    """Nothing is taken silently from one of the two."""
    with pytest.raises(Malformed) as refused:
        _read(tmp_path, {**RUN, **body}, changes)
    assert refused.value.field.endswith(field)


def test_the_words_of_a_change_are_those_that_make_it() -> None:
    """What is suggested to a person can be typed, and names each field as it was typed."""
    changes = Changes(noise="3", steps=7, partitions=("a/b/c", "d/e/f"))
    assert changes.words() == ["--noise", "3", "--steps", "7", "--partition", "a/b/c", "--partition", "d/e/f"]
    assert Changes(CONTRACT, DEADLINE).words() == []
    typed = changes.typed(Path("run.json"))
    assert (typed["body.plan.steps"], typed["body.partitions"]) == ("--steps", "--partition")
    assert "body.plan.steps" not in Changes(noise="3").typed(Path("run.json"))
