"""docs/streams.md: its document is one, and its commands are commands of this program."""

from __future__ import annotations

import shlex
import tomllib
from typing import Final

import jsonschema
from typer.testing import CliRunner

from client.cli.main import app
from ledger.domain.exit_codes import ExitCode
from policy.documents.stream import StreamDocument
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.epsilon_ledger.commands import parsed
from trainer_adapter.job.job_schema import job_schema

HERE: Final = "tests/documentation/test_streams_page.py"
EVERY: Final = blocks(ROOT / "docs" / "streams.md")
BLOCKS: Final = {one.language: one.text for one in EVERY if one.run_by == HERE}


def test_the_document_can_be_read() -> None:
    """With the budget of a slice that the page tells, for one appearance and for two."""
    document = StreamDocument.parse(BLOCKS["yaml"].encode())
    assert [str(one) for one in document.slice_budget] == ["6", "1/100000"]
    twice = StreamDocument.parse(BLOCKS["yaml"].replace("appearances_max: 1", "appearances_max: 2").encode())
    epsilon, delta = twice.slice_budget
    assert (str(epsilon), f"{float(delta):.1e}") == ("3", "4.7e-07")


def test_each_command_is_one() -> None:
    """By hand, by systemd and by cron: with arguments and options that it has."""
    unit = next(one for one in BLOCKS["ini"].splitlines() if one.startswith("ExecStart="))
    for line in (BLOCKS["sh"], unit, BLOCKS["text"]):
        words = shlex.split(line[line.index("dataset advance") :])
        done = CliRunner().invoke(app, words)
        # It knows every option, and ends because there is no such profile here.
        assert (done.exit_code, "hospital.toml" in done.stderr) == (ExitCode.NOT_FOUND, True), done.stderr


def test_each_file_and_command_of_the_walk_is_one() -> None:
    """So that a field or an option that changes is noticed before the walk is run."""
    walk = [one for one in EVERY if one.run_by == "tests/e2e/test_streams_walk.py"]
    files = {one.place: one.text for one in walk if one.place}
    assert [*files] == ["schema.toml", "stream.yaml", "job.toml"]
    assert StreamDocument.parse(files["stream.yaml"].encode()).window_max == 52
    jsonschema.validate(tomllib.loads(files["job.toml"]), job_schema())
    lines = [line for one in walk if one.language == "sh" for line in one.text.splitlines()]
    for words in (shlex.split(line)[1:] for line in lines if line.startswith("epsilon ")):
        names = {tuple(words[:2]), tuple(words[:1])}
        assert parsed(words[: words.index(">")] if ">" in words else words) in names
