"""Marks in models over a real service: made in the room, committed to by the release, found again, also in bases."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from client.http.problems import Refused
from client.watermarks.spread_spectrum import MARKED_MIN
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.main import app
from trainer_adapter.cli.train import train_job
from trainer_adapter.cli.watermark import find_marks, marks_in_words
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.models import make
from trainer_adapter.session.model_release import SEALED_FILE, ModelReleaseRequest
from trainer_adapter.training.attach import attach
from trainer_adapter.training.named_losses import LOSS_BY_NAME
from trainer_adapter.training.run_options import Options

NETWORKS = """
from pathlib import Path
from safetensors.torch import load_file
from torch import nn

def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10))

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def tuned():
    model = wide()
    model.load_state_dict(load_file(Path(__file__).parent / "first.safetensors"))
    return model
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A policy that asks for a mark in each model that leaves, and one model that left with it."""
    with open_place(tmp_path_factory.mktemp("marks") / "place", watermark=True, level=0) as found:
        (found.folder / "jobs" / "networks.py").write_text(NETWORKS, encoding="utf-8")
        run(found, "first")
        (found.folder / "runs" / "first" / "model.safetensors").rename(found.folder / "jobs" / "first.safetensors")
        yield found


def job_of(place: Place, name: str, model: str = "wide", *, mark: bool = True, **changes: object) -> Job:
    """A job that trains one of the networks."""
    path = place.job(name)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("model =")]
    path.write_text("\n".join([*lines[:3], f'model = "networks.py:{model}"', *lines[3:]]))
    return replace(Job.load(path), watermark=mark, **changes)  # type: ignore[arg-type] # members by name


def run(place: Place, name: str, model: str = "wide", *, mark: bool = True, **changes: object) -> list[str]:
    """Train it; what it said."""
    said: list[str] = []
    train_job(job_of(place, name, model, mark=mark, **changes), place.service, said.append)
    return said


def first(place: Place) -> Path:
    """The model that left with a mark."""
    return place.folder / "jobs" / "first.safetensors"


def test_the_mark_of_a_released_model_is_found(place: Place, tmp_path: Path) -> None:
    """By the file that left, and after its names and its values have changed a little; a foreign model has none."""
    answer = find_marks(first(place), place.service)
    assert answer["searched"] == 1
    assert marks_in_words(answer).startswith("first: its mark is in the model, with score ")
    changed = {f"layer.{name}": one + 0.05 * one.std() for name, one in load_file(first(place)).items()}
    save_file(changed, tmp_path / "changed.safetensors")
    assert marks_in_words(find_marks(tmp_path, place.service)).startswith("first: ")
    foreign = make("networks.py:wide", place.folder / "jobs", seed=7)
    save_file(foreign.state_dict(), tmp_path / "foreign.safetensors")
    assert marks_in_words(find_marks(tmp_path / "foreign.safetensors", place.service)).startswith("none of 1 marks")


def test_the_release_commits_to_the_key_of_the_mark(place: Place) -> None:
    """The commitment is in the entry and in the file; the key is nowhere."""
    with place.book.read() as facts:
        (release,) = (one for one in map(facts.entry, range(facts.size)) if b'"kind":"model_release"' in one)
    assert b'"watermark":"' in release
    commitment = release.split(b'"watermark":"')[1][:64]
    assert commitment in first(place).read_bytes()


def test_a_model_without_a_mark_stays_sealed(place: Place) -> None:
    """The policy asks for one; and so does a model that names a commitment of its own making."""
    said = run(place, "unmarked", mark=False)
    assert any("watermark" in line for line in said)
    assert (place.folder / "runs" / "unmarked" / SEALED_FILE).exists()


def test_a_commitment_that_is_not_the_charges_is_refused(place: Place, tmp_path: Path) -> None:
    """Any 64 digits were taken for a mark once."""
    job = job_of(place, "forged")
    save_file({"one": torch.ones(2, 2)}, tmp_path / "model", {"watermark": "c" * 64})
    model = make("networks.py:wide", job.folder)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimiser, LOSS_BY_NAME["cross_entropy"], job, Options(service=place.service)) as charged:
        list(charged)
    request = ModelReleaseRequest(
        job, place.service, charged.session.identity.signer, (tmp_path / "model").read_bytes(), None
    )
    with pytest.raises(Refused, match=r"not the commitment to the mark of charge forged"):
        request.submit()


def test_a_base_that_is_not_declared_ends_the_run_before_any_key(place: Place) -> None:
    """The room finds the mark in the weights that the run starts from; declared, the run goes on."""
    with pytest.raises(Malformed, match=r'^base: is missing: the model carries the watermark of "first": write base'):
        run(place, "hidden", "tuned")
    charge = place.charge("hidden")
    assert charge is not None
    assert charge.key_release is None
    run(place, "tuned", "tuned", base=["first"])
    answer = find_marks(place.folder / "runs" / "tuned" / "model.safetensors", place.service)
    assert {line.split(":")[0] for line in marks_in_words(answer).splitlines()} == {"first", "tuned"}


def test_a_model_that_is_too_small_for_a_mark_is_refused_before_its_charge(place: Place) -> None:
    """With how many weights it has, and how many a mark needs."""
    with pytest.raises(Malformed, match=rf"^model: has 640 values .* a watermark needs {MARKED_MIN}$"):
        run(place, "small", "small")
    assert place.charge("small") is None


def test_the_command_names_the_run(place: Place, tmp_path: Path) -> None:
    """As the page shows it; and it says what is no model."""
    (block,) = blocks(ROOT / "docs" / "watermarks.md")
    profile = str(place.profile(place.sro))
    files = {"sro.toml": profile, "model.safetensors": str(first(place))}
    found = CliRunner().invoke(app, [files.get(word, word) for word in shlex.split(block.text)[1:]])
    assert (found.exit_code, found.stdout.split(":")[0]) == (0, "first"), found.output
    (tmp_path / "text.safetensors").write_text("no model")
    refused = CliRunner().invoke(app, ["watermark", "find", profile, str(tmp_path)])
    assert "is no file of safetensors" in refused.stderr


def test_a_service_without_a_key_store_keeps_no_marks(tmp_path: Path) -> None:
    """The run says so before it gets a key, so that its charge may be voided."""
    with open_place(tmp_path / "place", authorise_only=True) as bare:
        (bare.folder / "jobs" / "networks.py").write_text(NETWORKS, encoding="utf-8")
        with pytest.raises(Refused, match="keeps no keys of watermarks"):
            run(bare, "first", grants=tmp_path / "grants")
        charge = bare.charge("first")
        assert charge is not None
        assert charge.key_release is None
