"""docs/streams.md, tried on one machine: two slices open, a run trains on both, and the stream shows what it used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from safetensors.numpy import load_file

from tests.documentation.fenced_blocks import ROOT, blocks
from tests.e2e.page_walk import followed, served

BLOCKS: Final = [one for one in blocks(ROOT / "docs" / "streams.md") if one.run_by == "tests/e2e/test_streams_walk.py"]


@pytest.mark.soak
def test_a_reader_opens_slices_and_trains_on_them(tmp_path: Path) -> None:
    """Every block as it stands, in its order; each slice has the loss of the one run."""
    with served(tmp_path, "epsilon up first"):
        printed = followed(tmp_path, BLOCKS)
    assert len(load_file(tmp_path / "runs" / "two-weeks" / "model.safetensors")) == 2
    accuracy = re.search(r"accuracy ([\d.]+)% on the public test set", printed)
    assert accuracy is not None
    assert float(accuracy[1]) > 85
    spent = re.findall(r"^│ \d{4}-W\d\d │ open +│ [^│]+ │ +([\d.]+) %", printed, re.MULTILINE)
    assert len(spent) == 2
    assert float(spent[0]) == float(spent[1]) > 0
