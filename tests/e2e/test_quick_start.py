"""The quick start as a reader would follow it: every block of the page is run, or written to the file it names."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from safetensors.numpy import load_file

from tests.e2e.page_walk import ENVIRONMENT, served
from tests.factories.own_table import own_table

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "quick_start.md"


def _blocks(page: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


BLOCKS: Final = _blocks(PAGE.read_text(encoding="utf-8"))
"""Each block's language, what follows it (the file, or the terminal), and its text."""
COMMANDS_MAX: Final = 15
"""How many lines a reader pastes until the model is verified: what is looked at afterwards is not counted."""
OWN: Final = ("own table", "own.toml")
"""What is for the reader's own table."""


def _up() -> str:
    (up,) = (
        text for language, where, text in BLOCKS if (language, where) == ("sh", "terminal 1") and "up" in text.split()
    )
    return up


def _pasted_into(place: Path, text: str) -> str:
    """What a block of shell printed in the second terminal."""
    done = subprocess.run(
        ["bash", "-euc", text], cwd=place, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, text + done.stdout + done.stderr
    return done.stdout


def test_a_reader_gets_from_a_table_to_a_verified_model(tmp_path: Path) -> None:
    """No command fails; the model was released, and the book verifies."""
    printed = ""
    with served(tmp_path, _up()) as reported:
        for language, where, text in BLOCKS:
            if where in OWN:
                continue
            if language != "sh":
                (tmp_path / where).write_text(text)
            elif not where:
                printed += _pasted_into(tmp_path, text)
        # What `epsilon up` printed is of another dataset: a reader may follow both.
        commands = [line.strip() for line in reported if line.startswith("  ") and " first/" in line]
        assert len(commands) == 7
        for command in commands[:-2]:
            _pasted_into(tmp_path, command)
    weights = load_file(tmp_path / "runs" / "first-run" / "model.safetensors")
    assert sorted(one.shape for one in weights.values()) == [(2,), (2, 30)]
    # Four of ten are of the smaller class.
    assert _accuracy(printed) > 80
    assert "first-run" in printed
    assert "more such runs fit" in printed
    assert "1 charge priced again" in printed


def _accuracy(printed: str) -> float:
    found = re.search(r"accuracy ([\d.]+)% on the public test set", printed)
    assert found is not None, printed
    return float(found[1])


@pytest.mark.soak
def test_a_table_of_ones_own_becomes_a_verified_model(tmp_path: Path) -> None:
    """Its files changed as the page says, and nothing else; the wall time of each line is printed, set-up first."""
    (tmp_path / "table.csv").write_text(own_table(1_501))
    own = {where: text for _, where, text in BLOCKS if where in OWN}
    began, printed = time.monotonic(), ""
    spent: list[tuple[str, float]] = []

    def took(what: str) -> None:
        spent.append((what, time.monotonic() - began - sum(seconds for _, seconds in spent)))

    with served(tmp_path, _up()):
        took("epsilon up")
        for language, where, text in BLOCKS:
            if where in OWN:
                if language == "sh":
                    _pasted_into(tmp_path, text)
            elif where == "schema.toml":
                (tmp_path / where).write_text(own["own.toml"])
            elif language != "sh":
                (tmp_path / where).write_text(text.replace("469", str(_sealed(printed))))
            elif not where and not text.startswith("python "):
                for line in text.splitlines():
                    printed += _pasted_into(tmp_path, line)
                    took(" ".join(line.split()[:3]))
    for what, seconds in [*spent, ("in all", sum(seconds for _, seconds in spent))]:
        print(f"{seconds:7.1f} s  {what}")  # noqa: T201 - what it is run for
    weights = load_file(tmp_path / "runs" / "first-run" / "model.safetensors")
    # 24 numbers, a weight, three values of the one text column and three of the other.
    assert sorted(one.shape for one in weights.values()) == [(2,), (2, 31)]
    assert _accuracy(printed) > 75
    assert "1 charge priced again" in printed
    assert sum(seconds for _, seconds in spent) < 600


def _sealed(printed: str) -> int:
    """How many records `epsilon dataset seal` said to state; before it is run, what the page says."""
    found = re.search(r'says "records": (\d+)', printed)
    return int(found[1]) if found else 469


def test_both_ways_take_few_pasted_lines() -> None:
    """With the example's table and with one's own, from the path that is set to the book that is verified."""
    way = _blocks(PAGE.read_text(encoding="utf-8").partition("\n## 7.")[0])
    shell = [(where, text) for language, where, text in way if language == "sh"]
    assert shell[0][1].startswith("export ")
    assert "\nepsilon verify " in shell[-1][1]
    example = [text for where, text in shell if where not in OWN]
    own = [text for _, text in shell if not text.startswith("python ")]
    assert len(own) == len(example) == len(shell) - 1
    assert max(_pasted(example), _pasted(own)) <= COMMANDS_MAX


def _pasted(texts: list[str]) -> int:
    """How many lines of shell are pasted; one whose quotes span lines counts once."""
    lines = (re.sub('"[^"]*"', "", text).splitlines() for text in texts)
    return sum(bool(line.strip()) for one in lines for line in one)


def test_a_table_of_ones_own_is_sealed(tmp_path: Path) -> None:
    """Thirty columns, some of text and with spaces in their names, with empty cells: by the page's schema."""
    (tmp_path / "table.csv").write_text(own_table(151))
    own = {where: text for _, where, text in BLOCKS if where in OWN}
    (tmp_path / "schema.toml").write_text(own["own.toml"])
    (seal,) = (text for _, _, text in BLOCKS if text.startswith("epsilon dataset seal"))
    lines = f"mkdir -p first/data-keys/did:web:tdp.localhost\n{own['own table']}{seal}"
    done = subprocess.run(
        ["bash", "-euc", lines], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sealed: 51 records sealed for did:web:tdp.localhost/patients/first")


def test_every_block_of_the_page_is_run_or_written() -> None:
    """None is of another language, and each file has a name."""
    assert {language for language, _, _ in BLOCKS} == {"sh", "toml", "json"}
    assert all(where for language, where, _ in BLOCKS if language != "sh")
    assert PAGE.read_text(encoding="utf-8").count("\n```") == 2 * len(BLOCKS)
