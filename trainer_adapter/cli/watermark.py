"""``epsilon watermark find``: the runs that a model descends from, by the marks in its weights."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from client.service.service import Service
from client.watermarks.spread_spectrum import MARKED_MIN
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from trainer_adapter.training.model_mark import fingerprint_of


def find_marks(model: Path, service: Service) -> Object:
    """What a search for all marks in a model answers. Raises: Malformed, OSError, Refused, Unreachable."""
    files = sorted(model.glob("*.safetensors")) if model.is_dir() else [model]
    if not files:
        raise Malformed("MODEL", f"{model} holds no file of safetensors")
    tensors: list[Tensor] = []
    for file in files:
        with file.open("rb"):
            pass
        try:
            tensors += load_file(file).values()
        except SafetensorError:
            raise Malformed("MODEL", f"{file} is no file of safetensors") from None
    weights = fingerprint_of(tensors)
    if weights is None:
        raise Malformed("MODEL", f"{model} has fewer than {MARKED_MIN} weights in matrices: it can carry no mark")
    return service.search_watermarks(weights)


def marks_in_words(answer: Object) -> str:
    """What a search found, for people."""
    runs = answer["found"]
    assert isinstance(runs, list)
    searched = answer["searched"]
    lines = [
        f"{run['charge']}: its mark is in the model, with score {run['score']}; by chance that comes once in "
        f"2^{run['bits']} searches at most"
        for run in runs
        if isinstance(run, dict)
    ]
    none = f"none of {searched} marks is in the model. A model whose neurons were permuted, or that was trained anew on"
    return "\n".join(lines) or f"{none} another's answers, carries no mark."
