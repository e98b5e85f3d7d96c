"""A consumer's own model: a file beside the job; whatever is wrong with it is told before anything is charged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.cli.evaluate import measure
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.models import FILE_BYTES_MAX, make

GOOD = """
from dataclasses import dataclass
from torch import nn

@dataclass
class Size:
    hidden: int = 8

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, Size().hidden), nn.Linear(Size().hidden, 10)

    def forward(self, images):
        return self.two(nn.functional.dropout(self.one(images).tanh(), 0.5, self.training))

def small():
    return Small()
"""
BAD = {
    "no-file": ("missing.py:small", GOOD, r"missing\.py cannot be read: No such file"),
    "a-folder": ("..:small", GOOD, r"must be FILE\.py:FUNCTION"),
    "no-function": ("networks.py:large", GOOD, r"networks\.py has no function large"),
    "no-name": ("networks.py:", GOOD, r"must be FILE\.py:FUNCTION"),
    "a-value": ("networks.py:GOOD", "GOOD = 1", "has no function GOOD"),
    "syntax": ("networks.py:small", "def small(:", r"networks\.py raised SyntaxError"),
    "import": ("networks.py:small", "import nothing_of_this_name", r"networks\.py raised ModuleNotFoundError"),
    "ends": ("networks.py:small", "raise SystemExit('gone')", r"networks\.py raised SystemExit: gone"),
    "raises": ("networks.py:small", "def small():\n    return 1 / 0", "raised ZeroDivisionError: division by zero"),
    "arguments": ("networks.py:small", "def small(width):\n    return width", "raised TypeError: .*width"),
    "no-module": ("networks.py:small", "def small():\n    return 7", r"gave a int, and must give a torch\.nn\.Module"),
    "nothing-to-train": ("networks.py:small", "from torch import nn\nsmall = nn.Tanh", "nothing to train"),
    "shape": ("networks.py:small", "from torch import nn\ndef small():\n    return nn.Linear(5, 10)", ""),
    "long": ("networks.py:small", "#" * (FILE_BYTES_MAX + 1), "has more than"),
    "unknown": ("networks", GOOD, r"must be one of digits-linear, digits-mlp, or FILE:FUNCTION"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose policy asks which pipeline runs, and lets no model leave."""
    folder = tmp_path_factory.mktemp("own") / "place"
    with open_place(folder, pipeline=True, level=2, model_release=False) as found:
        yield found


def _job(place: Place, name: str, model: str, source: str) -> Path:
    (place.folder / "jobs" / "networks.py").write_text(source)
    job = place.job(name)
    job.write_text(job.read_text().replace('"digits-linear"', f'"{model}"'))
    return job


def test_a_model_of_its_own_is_trained_sealed_and_measured(place: Place) -> None:
    """Its file is what the charge and the evidence name as the pipeline; the sealed model opens with it again."""
    job = _job(place, "own", "networks.py:small", GOOD)
    report = place.run(job)
    assert report.steps == PLAN.steps
    charge = place.charge("own")
    assert charge is not None
    assert charge.pipeline == hashlib.sha256(GOOD.encode()).hexdigest()
    assert measure(Job.load(job), place.service, lambda _: None).accuracy == report.accuracy


def test_its_first_weights_are_public(tmp_path: Path) -> None:
    """The same whatever torch's seed, which is left alone."""
    (tmp_path / "networks.py").write_text(GOOD)
    first = make("networks.py:small", tmp_path)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    second = make("networks.py:small", tmp_path)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_model_costs_nothing(place: Place, name: str) -> None:
    """Told by its field, in one line, before the charge, and no folder is made."""
    model, source, says = BAD[name]
    size = len(place.kinds())
    with pytest.raises(Malformed, match=rf"^model: .*{says}") as caught:
        place.run(_job(place, f"bad-{name}", model, source))
    assert "\n" not in str(caught.value)
    assert len(place.kinds()) == size
    assert not (place.folder / "runs" / f"bad-{name}").exists()


def test_a_pipeline_that_the_job_names_is_the_run_s(place: Place) -> None:
    """The model's file is the pipeline only where the job names none."""
    job = _job(place, "both", "networks.py:small", GOOD)
    job.write_text(job.read_text().replace("[train]", '[train]\npipeline = "pipeline.json"', 1))
    assert Job.load(job).pipeline == place.folder / "jobs" / "pipeline.json"
