"""A model from a folder of public weights: a Transformers classifier, its weights as safetensors and nothing else.

Other forms of weights are Python's pickles, which run code when they are read; code that a folder brings is not run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ledger.wire.malformed import Malformed


class Scores(nn.Module):
    """A Transformers model that takes tokens (records, length) alone and gives scores (records, classes)."""

    def __init__(self, core: Any) -> None:  # noqa: ANN401 - a model of Transformers, which the trainer does not need
        super().__init__()
        self.core = core

    def forward(self, tokens: Tensor) -> Tensor:
        """The scores of each record."""
        scores: Tensor = self.core(input_ids=tokens).logits
        return scores


def pretrained(folder: Path, outputs: int | None) -> nn.Module:
    """The classifier in a folder, in training mode. Raises: Malformed.

    Args:
        outputs: how many classes; those of the folder's configuration where it is None.
    """
    if not (folder / "config.json").is_file():
        raise Malformed("model", f"the folder {folder.name} holds no config.json, as save_pretrained writes it")
    if not any(folder.glob("*.safetensors")):
        raise Malformed("model", f"the folder {folder.name} holds no weights as safetensors: save them so")
    try:
        from transformers import AutoModelForSequenceClassification
    except ImportError:
        rule = "is a folder, which needs Transformers: pip install 'epsilon-ledger[transformers]'"
        raise Malformed("model", rule) from None
    size = {} if outputs is None else {"num_labels": outputs}
    try:
        core = AutoModelForSequenceClassification.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False, **size
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        text = " ".join(str(error).split())[:200]
        raise Malformed("model", f"the folder {folder.name} gives no classifier: {text}") from None
    return Scores(core).train()
