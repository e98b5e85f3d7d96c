"""What one process compiled another one finds: the same kernels, the same graph, and no compiler is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_adapter.per_sample import autotune
from trainer_adapter.per_sample.gradient_factors import OuterProductGrad
from trainer_adapter.per_sample.rounding_margins import precision_of

CHILD = Path(__file__).parents[1] / "compiling_child.py"
FACTOR = OuterProductGrad(torch.rand(4, 3, 5), torch.rand(4, 3, 6))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on disk, and a process that has chosen nothing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(autotune, "_chosen", {})
    return tmp_path


def _chosen(monkeypatch: pytest.MonkeyPatch, *, on_disk: bool) -> str:
    """By a process that has chosen nothing yet."""
    monkeypatch.setattr(autotune, "_chosen", {})
    return autotune.choose([FACTOR], 30, precision_of("float32"), on_disk=on_disk)


def test_a_choice_is_that_of_an_earlier_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it was; one that is no candidate, or a file that cannot be read, is measured again."""
    names = autotune.candidates([FACTOR], 30, precision_of("float32"))
    assert len(names) > 1
    _chosen(monkeypatch, on_disk=False)
    assert not list(folder.iterdir())
    first = _chosen(monkeypatch, on_disk=True)
    path = folder / autotune.CHOICES_FILE
    ((layout, kept),) = json.loads(path.read_text()).items()
    assert kept == first
    for name in names:
        path.write_text(json.dumps({layout: name}))
        assert _chosen(monkeypatch, on_disk=True) == name
    for wrong in (json.dumps({layout: "embedding_rows"}), "[]", "{"):
        path.write_text(wrong)
        again = _chosen(monkeypatch, on_disk=True)
        assert again in names
        assert json.loads(path.read_text()) == {layout: again}


@pytest.mark.soak
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """By TorchInductor's own count, and by a compiler that writes down its work; the sums are equal bit for bit.

    Within the first one the run's graph is that of its example, so it is compiled before the charge.
    """
    calls = tmp_path / "calls"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(compiler)}
    environment |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    found: list[dict[str, Any]] = []
    counted = []
    for _ in range(2):
        done = subprocess.run([sys.executable, str(CHILD)], env=environment, capture_output=True, check=True, text=True)
        found.append(json.loads(done.stdout))
        # It is asked for its version too, and for what its headers hold.
        counted.append(sum(".cpp " in line for line in calls.read_text().splitlines()))
    assert found[0]["compiled"][0] > 0
    assert found[0]["compiled"][1:] + found[1]["compiled"] == [0, 0, 0]
    assert counted[0] > 0
    assert counted[1] == counted[0]
    assert found[0]["kernels"] == found[1]["kernels"]
    assert found[0]["sum"] == found[1]["sum"]
