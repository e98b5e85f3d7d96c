"""Folders of public weights as Transformers saves them: from the check of a job to the model that leaves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.main import app

VOCABULARY, LENGTH, PUBLIC = 30, 8, 24
UNKNOWN: Final = 987_654_321
_PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service, and the public folders beside the jobs."""
    with open_place(tmp_path_factory.mktemp("folders") / "place") as found:
        _publish(found.folder / "jobs")
        yield found


def _publish(folder: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    torch.manual_seed(11)
    known = BertConfig.from_dict(
        {"vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "num_labels": 2, **sizes}
    )
    BertForSequenceClassification(known).save_pretrained(folder / "bert")
    sizes = {"n_positions": LENGTH, "n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}
    GPT2LMHeadModel(GPT2Config.from_dict({"vocab_size": VOCABULARY, **sizes})).save_pretrained(folder / "gpt2")


def _texts(records: int, *, next_token: bool, token: int | None = None) -> dict[str, Any]:
    """Texts whose first word tells what they are, filled up; the target is that, or the next word."""
    drawn = np.random.default_rng(records)
    words = drawn.integers(4, VOCABULARY, (records, LENGTH))
    kinds = drawn.integers(0, 2, records)
    words[:, 0] = 2 + kinds
    mask = np.arange(LENGTH)[None] < drawn.integers(3, LENGTH + 1, records)[:, None]
    words[~mask] = 0
    if token is not None:
        words[1, 1] = token
    following = np.where(np.roll(mask, -1, axis=1) & (np.arange(LENGTH) < LENGTH - 1), np.roll(words, -1, axis=1), -100)
    return {
        "inputs.input_ids": words,
        "inputs.attention_mask": mask.astype(np.int64),
        "targets": following if next_token else kinds,
    }


def _job(place: Place, name: str, model: str, *, test: dict[str, Any] | None = None, **changes: str) -> Path:
    """The demonstration's job with this folder, and a test set of its own."""
    next_token = model == "gpt2"
    found = _texts(PUBLIC, next_token=next_token) if test is None else test
    np.savez(place.folder / "data" / f"{name}.npz", **found)
    path = place.job(name)
    text = path.read_text().replace('"digits-linear"', f'"{model}"').replace("test.npz", f"{name}.npz")
    lines = "".join(f"{member} = {value}\n" for member, value in changes.items())
    path.write_text(text.replace("[train]\n", f"[train]\n{lines}", 1))
    return path


def _invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*words])
    return done.exit_code, done.stdout, done.stderr


@_PEFT
@pytest.mark.parametrize(
    ("model", "lora"),
    [
        pytest.param("bert", "", marks=pytest.mark.soak),
        ("gpt2", '{rank = 2, modules = ["c_attn"]}'),
        pytest.param("bert", "{rank = 2, alpha = 4}", marks=pytest.mark.soak),
        pytest.param("gpt2", "", marks=pytest.mark.soak),
    ],
)
def test_a_folder_is_checked_trained_measured_and_released(tmp_path: Path, model: str, lora: str) -> None:
    """Records by name with their mask, one of them with a token of no word, which stops nothing and is not told."""
    with open_place(tmp_path / "place", notice_hours=24) as place:
        _publish(place.folder / "jobs")
        moved = _moved(place, model, lora)
    assert moved
    assert all(("lora_" in each or "modules_to_save" in each) == bool(lora) for each in moved)


def _moved(place: Place, model: str, lora: str) -> set[str]:
    """From the check to the release; the weights that left other than they were published."""
    name = f"{model}-{'lora' if lora else 'full'}"
    changes: dict[str, Any] = {"lora": lora} if lora else {}
    job = _job(place, name, model, **changes)
    place.put(**_texts(60, next_token=model == "gpt2", token=UNKNOWN))
    size = len(place.kinds())
    code, reported, errors = _invoke("job", "check", str(job), "--json")
    assert code == 0, errors
    assert json.loads(reported)["test_records"] == PUBLIC
    assert len(place.kinds()) == size
    code, reported, errors = _invoke("train", str(job), "--json")
    assert code == 0, errors
    assert str(UNKNOWN) not in reported + errors
    report = json.loads(reported.splitlines()[-1])
    assert (report["steps"], report["model"]) == (20, "")
    code, reported, errors = _invoke("evaluate", str(job), "--json")
    assert code == 0, errors
    assert float(json.loads(reported.splitlines()[-1])["accuracy"]) == pytest.approx(report["accuracy"], abs=1e-6)
    place.republish(notice_hours=0)
    code, reported, errors = _invoke("release", str(job))
    assert code == 0, errors
    before = load_file(place.folder / "jobs" / model / "model.safetensors")
    after = load_file(place.folder / "runs" / name / "model.safetensors")
    return {each for each, value in after.items() if not torch.equal(value, before.get(_public(each), value * 0 + 7))}


def _public(name: str) -> str:
    """What a weight of the trained model is called in the public file."""
    bare = name.removeprefix("core.").removeprefix("base_model.model.").replace("base_layer.", "")
    bare = bare.replace("original_module.", "").replace("modules_to_save.default.", "")
    # GPT-2 scores by the weights of its embedding, which its file holds once.
    return bare.replace("lm_head.weight", "transformer.wte.weight")


def _without(folder: Path, source: str, *names: str) -> None:
    shutil.copytree(folder / source, folder / "changed")
    for name in names:
        (folder / "changed" / name).unlink()


def _pickled(folder: Path) -> None:
    _without(folder, "bert", "model.safetensors")
    torch.save({"weight": torch.zeros(2)}, folder / "changed" / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    _without(folder, "bert")
    path = folder / "changed" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


MISTAKES: Final[dict[str, tuple[Any, dict[str, str], str]]] = {
    "a folder of pickles": (_pickled, {}, "the folder changed holds no weights as safetensors: save them so"),
    "no config.json": (lambda folder: _without(folder, "bert", "config.json"), {}, "holds no config.json"),
    "no weights": (lambda folder: _without(folder, "bert", "model.safetensors"), {}, "no weights as safetensors"),
    "damaged weights": (_cut, {}, "the folder changed"),
    "no LoRA layer of that name": (_without, {"lora": '{rank = 2, modules = ["nowhere"]}'}, "lora: fits no layer"),
    "a rank of none": (_without, {"lora": "{rank = 0}"}, "train.lora.rank: must"),
    "outputs of a text": (_without, {"outputs": "3"}, "outputs: is for one class of each record"),
    "a vocabulary that is greater": (
        _without,
        {"preprocessing": '[{kind = "vocabulary", size = 99, public = "a page"}]'},
        "preprocessing: maps to more tokens than the 30 that the model changed knows",
    ),
}


@_PEFT
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_a_folder_is_reported_before_the_charge(place: Place, name: str) -> None:
    """By the check, in one sentence, and nothing is recorded."""
    spoil, changes, says = MISTAKES[name]
    shutil.rmtree(place.folder / "jobs" / "changed", ignore_errors=True)
    spoil(place.folder / "jobs", *(["gpt2"] if spoil is _without else []))
    texts = _texts(PUBLIC, next_token=spoil is _without)
    assert says in _told(place, _job(place, "mistake", "changed", test=texts, **changes))


@pytest.mark.parametrize(
    ("model", "test", "says"),
    [
        (
            "bert",
            _texts(9, next_token=False, token=VOCABULARY),
            "test: holds the token 30, and the model bert knows 0 to 29",
        ),
        ("gpt2", _texts(9, next_token=True, token=-1), "test: holds the token -1, and the model gpt2 knows 0 to 29"),
        (
            "bert",
            {**_texts(9, next_token=False), "targets": np.full(9, 2)},
            "test: holds a target that is none of the 2",
        ),
        (
            "bert",
            {"inputs.tokens": np.zeros((9, 4), int), "targets": np.zeros(9, int)},
            "model: does not take a record",
        ),
        (
            "linear",
            _texts(9, next_token=False),
            "model: linear takes one array of inputs, and the test set has several",
        ),
        ("nowhere", _texts(9, next_token=False), "model: must be one of"),
    ],
)
def test_a_test_set_of_another_vocabulary_is_reported(
    place: Place, model: str, test: dict[str, Any], says: str
) -> None:
    """A public set may be named; which token of a private one is wrong never is."""
    assert says in _told(place, _job(place, "mistake", model, test=test))


def test_a_correction_of_a_model_that_is_no_folder_is_reported(place: Place) -> None:
    """It is for public weights."""
    reported = _told(place, _job(place, "mistake", "digits-linear", lora="{rank = 2}"))
    assert "lora: is for a folder of public weights" in reported


def _told(place: Place, job: Path) -> str:
    """What the check says of a wrong job, nothing recorded."""
    size = len(place.kinds())
    code, reported, errors = _invoke("job", "check", str(job))
    assert (code, reported) == (2, ""), errors
    assert errors.splitlines()[-1].startswith("Nothing was recorded")
    assert len(place.kinds()) == size
    return errors
