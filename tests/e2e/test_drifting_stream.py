"""The example that trains on a drifting stream: what it tells is what its book holds, and what its picture shows."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.store.engine import url_of
from ledger.verifier import LogKey
from policy.decisions.gate import gate
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.factories.stored import no_step

SCRIPT: Final = ROOT / "docs" / "examples" / "drifting_stream.py"


def verified(folder: Path) -> int:
    """The entries of its book, each of them decided again."""
    log = LogKey.parse((folder / "log.vkey").read_text().strip())
    return verify_book(url_of(folder / "book.sqlite"), log, no_step, gate=gate).entries


def heights(svg: str, kind: str) -> list[float]:
    """What a line of the lower panel shows, in per cent, by the labels at its axis."""
    axis = [
        (float(y) - 4, int(share)) for y, share in re.findall(r'y="([\d.]+)" class="hint percent end">(\d+) %', svg)
    ]
    (low, least), (high, most) = axis[0], axis[-1]
    (points,) = re.findall(rf'<polyline class="{kind}" points="([^"]*)"', svg)
    found = [float(point.split(",")[1]) for point in points.split()]
    return [least + (low - y) / (low - high) * (most - least) for y in found]


def test_three_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice a week, a run on the newest two as soon as there are two; file and picture say what was seen."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    example: Any = importlib.import_module(SCRIPT.stem)
    folder = tmp_path / "made"
    rows = example.main([str(folder), "--weeks", "3", "--window", "2", "--every", "1"])
    assert [(row.trained, row.refused, len(row.spent)) for row in rows] == [
        (False, "", 1),
        (True, "", 2),
        (True, "", 3),
    ]
    first, both, last = (rows[-1].spent[row.period] for row in rows)
    assert 0 < first == last < both < 100
    assert json.loads((folder / "weeks.json").read_text()) == [vars(row) for row in rows]
    svg = (folder / "drifting_stream.svg").read_text()
    shades = re.findall(r'class="slice" .* fill-opacity="([\d.]+)"', svg)
    shares = [share for row in rows for share in row.spent.values()]
    assert [float(one) for one in shades] == pytest.approx([0.08 + 0.92 * one / 100 for one in shares], abs=0.001)
    assert svg.count('class="run"') == 2
    for kind in ("renewed", "once"):
        seen = [100 * getattr(row, kind) for row in rows[1:]]
        assert heights(svg, kind) == pytest.approx(seen, abs=0.1)
    assert verified(folder) > 10


@pytest.mark.soak
def test_half_a_year(tmp_path: Path) -> None:
    """As docs/streams.md runs it: what is renewed stays right, what was trained once does not, no slice overspends."""
    (command,) = (one.text for one in blocks(ROOT / "docs" / "streams.md") if "drifting_stream.py" in one.text)
    there = command.replace("python docs/examples", f"{sys.executable} {SCRIPT.parent}")
    subprocess.run(["bash", "-euc", there], cwd=tmp_path, check=True)
    folder = tmp_path / "weeks"
    rows = json.loads((folder / "weeks.json").read_text())
    assert len(rows) == 26
    assert max(share for row in rows for share in row["spent"].values()) <= 100
    assert len({name for row in rows for name in row["retired"]}) > 10
    renewed, once = (sum(row[kind] for row in rows[-8:]) / 8 for kind in ("renewed", "once"))
    assert renewed > 0.75
    assert renewed - once > 0.2
    assert verified(folder) > 100
