"""A stream of weekly slices keeps every slice within its budget, and tells whoever asks why not, for years."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ledger.audit.replay import verify_book
from ledger.cli.main import app
from policy.decisions.gate import gate
from tests.factories.people import LOG
from tests.factories.state_agreement import check_agreement
from tests.factories.stored import no_step, open_world
from tests.ledger.book.stream_weeks import THREE, StreamWeeks


@pytest.mark.parametrize(
    ("engine", "weeks", "window", "steps"),
    [
        ("sqlite", 10, 4, 150),
        pytest.param("sqlite", 104, 52, 20, marks=pytest.mark.soak),
        pytest.param("postgresql", 104, 52, 20, marks=pytest.mark.soak),
    ],
)
def test_weeks_of_a_stream(tmp_path: Path, engine: str, weeks: int, window: int, steps: int) -> None:
    """Slices open and retire, three banks ask each week, two of them merge half-way."""
    with open_world(tmp_path, engine, founded=False) as world:
        told = StreamWeeks(world, weeks, window, steps)
        told.run()
        sums = told.sums
        assert (len(sums.opened), told.most_open) == (weeks, window + 1)
        assert len(sums.retired) == weeks - window - 1
        assert told.answers.total() == len(THREE) * weeks
        assert told.answers.keys() == {"pending", "budget_exhausted"}
        assert (sums.late > 0, {*told.told}) == (True, {True, False})
        assert not any(run.pending for run in sums.runs.values())
        found = verify_book(world.url, LOG, no_step, gate=gate)
        assert (found.charges, found.entries) == (len(sums.runs), world.size)
        check_agreement(world.book, world.url)
        key = tmp_path / "log.vkey"
        key.write_text(f"{LOG.vkey}\n", encoding="ascii")
        said = CliRunner().invoke(app, ["verify", world.url, "--log", str(key)])
        assert (said.exit_code, said.stdout.startswith("verified: ")) == (0, True), said.output
