"""Public weights fine-tuned under a contract: a transformer from its folder, every weight of it or LoRA's alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.training.training_records import read_records

ROOT: Final = Path(__file__).parents[3]
LENGTH: Final = 16
VOCABULARY: Final = 65


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file, and the public weights in its folder; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("fine") / "place") as found:
        _publish(found.folder / "public-weights")
        yield found


def _publish(folder: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(11)
    shape = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
    )
    shape.num_labels = 10
    BertForSequenceClassification(shape).save_pretrained(folder)


def _tokens(data: bytes, ref: str) -> tuple[Tensor, Tensor]:
    """A digit in sixteen tokens, each the ink of half a row."""
    inputs, targets = read_records(data, ref)
    return (inputs.reshape(-1, LENGTH, 4).sum(dim=2) * 16).round().to(torch.int64), targets


def _fine_tuned(place: Place, name: str, monkeypatch: pytest.MonkeyPatch, leave_out: str) -> Path:
    """The lines of the trainer's page, run but for those that match; the model that left."""
    page = (ROOT / "trainer_adapter" / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    kept = "".join(line for line in lines.splitlines(keepends=True) if not (leave_out and leave_out in line))
    monkeypatch.chdir(place.folder)
    shutil.copy(place.assignment_file(name), place.folder / "job.toml")
    text = (place.folder / "job.toml").read_text().replace("../", "")
    (place.folder / "job.toml").write_text(text)
    exec(compile(kept, "README.md", "exec"), {"__name__": "page", "tokens": _tokens})  # noqa: S102 - our own page
    return place.folder / "runs" / name / "model.safetensors"


# PEFT asks Transformers by a name that is to go.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_public_weights_are_fine_tuned_and_leave_with_their_price(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty charged steps: what trains has moved, what is frozen is as published, and the file names its cost."""
    file = _fine_tuned(place, kind, monkeypatch, "get_peft_model(core" if kind == "full" else "")
    assert "20 0 steps left" in capsys.readouterr().out
    before, after = load_file(place.folder / "public-weights" / "model.safetensors"), load_file(file)
    moved = {name for name, value in after.items() if not torch.equal(value, before.get(_public(name), value * 0 + 7))}
    if kind == "full":
        assert {name.removeprefix("core.") for name in after} >= set(before)
        assert {name.removeprefix("core.") for name in moved} >= set(before)
    else:
        assert all("lora_" in name or "classifier.modules_to_save" in name for name in moved)
        assert sum("lora_" in name for name in moved) == len(moved) - 2 == 4
        assert len(after) - len(moved) >= len(before)
    with safe_open(file, "pt") as held:
        about = held.metadata()
    charge = place.charge(kind)
    assert charge is not None
    assert charge.steps_posted == PLAN.steps
    assert (about["charge"], about["contract"], about["plan"]) == (kind, place.contract, PLAN.digest)
    assert (about["steps"], about["delta"], about["accountant"]) == (str(PLAN.steps), "0.0001", "PLD")
    assert 0 < float(about["epsilon"]) < 2.5


def _public(name: str) -> str:
    """What a weight of the trained model is called in the public file."""
    bare = name.removeprefix("core.").removeprefix("base_model.model.")
    return bare.replace("base_layer.", "").replace("original_module.", "").replace("modules_to_save.default.", "")
