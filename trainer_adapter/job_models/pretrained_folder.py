"""A model from a folder of public weights: one of Transformers, its weights as safetensors and nothing else.

With one class for each record it is a classifier, with a class for each token a language model that is scored on each
next token. Other forms of weights are Python's pickles, which run code when they are read; code that a folder brings is
not run. LoRA (Hu et al. 2021, arXiv 2106.09685) trains a correction of low rank beside weights that stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.job.lora_terms import Lora

_TRANSFORMERS: Final = "which needs Transformers: pip install 'epsilon-ledger[transformers]'"


@dataclass(frozen=True, slots=True)
class Task:
    """What a folder's model is taken for.

    Attributes:
        outputs: how many classes; those of the folder's configuration where it is None.
        next_token: whether it is scored on each next token.
        lora: what trains beside the weights, in place of them.
    """

    outputs: int | None = None
    next_token: bool = False
    lora: Lora | None = None


class Scores(nn.Module):
    """A Transformers model that gives scores alone, (records, classes) or (records, length, vocabulary).

    One tensor is its main input, as tokens (records, length); several come by name.

    Attributes:
        vocabulary: how many tokens it knows; None if it takes none.
    """

    def __init__(self, core: Any) -> None:  # noqa: ANN401 - a model of Transformers, which the trainer does not need
        super().__init__()
        self.core, self._main = core, core.main_input_name
        known = core.get_input_embeddings()
        self.vocabulary = known.num_embeddings if isinstance(known, nn.Embedding) else None

    def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
        """Scores: (records, classes) or (records, tokens, vocabulary). Raises: Malformed, for arrays without names."""
        if len(inputs) > 1:
            raise Malformed("inputs", f"are {len(inputs)} arrays without names: name them, as inputs.{self._main}")
        main = {self._main: inputs[0]} if inputs else {}
        scores: Tensor = self.core(**main, **named).logits
        return scores


def pretrained(folder: Path, task: Task) -> nn.Module:
    """The model in a folder, in training mode. Raises: Malformed."""
    if not (folder / "config.json").is_file():
        raise Malformed("model", f"the folder {folder.name} holds no config.json, as save_pretrained writes it")
    if not any(folder.glob("*.safetensors")):
        raise Malformed("model", f"the folder {folder.name} holds no weights as safetensors: save them so")
    try:
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    except ImportError:
        raise Malformed("model", f"is a folder, {_TRANSFORMERS}") from None
    if task.next_token:
        kind: Any = AutoModelForCausalLM
        named, size = "model of the next token", dict[str, int]()
    else:
        kind, named = AutoModelForSequenceClassification, "classifier"
        size = {} if task.outputs is None else {"num_labels": task.outputs}
    try:
        with _quietly():
            core = kind.from_pretrained(
                str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False, **size
            )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        text = " ".join(str(error).split())[:200]
        raise Malformed("model", f"the folder {folder.name} gives no {named}: {text}") from None
    except Exception as error:
        # Safetensors have an error of their own for a damaged file, which is no subclass of these.
        if type(error).__module__.partition(".")[0] != "safetensors":
            raise
        raise Malformed("model", f"the folder {folder.name} holds weights that are damaged: {error}") from None
    core.config.use_cache = False
    return Scores(core if task.lora is None else _with_lora(core, task.lora, next_token=task.next_token)).train()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars and reports of Transformers, which would appear between our lines."""
    from transformers.utils import logging as settings

    logging: Any = settings
    before, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if shown:
            logging.enable_progress_bar()


def _with_lora(core: Any, lora: Lora, *, next_token: bool) -> nn.Module:  # noqa: ANN401 - a model of Transformers
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise Malformed("lora", "needs PEFT: pip install 'epsilon-ledger[transformers]'") from None
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha or 2 * lora.rank,
        target_modules=list(lora.modules) if lora.modules else None,
        # A head that is made anew for the classes trains whole.
        task_type="CAUSAL_LM" if next_token else "SEQ_CLS",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in core.modules()),
    )
    try:
        with warnings.catch_warnings():
            # PEFT asks Transformers by a name that is to go, and knows by itself which weights lie turned.
            warnings.simplefilter("ignore")
            made: nn.Module = get_peft_model(core, config)
    except ValueError as error:
        rule = f"fits no layer of the model; name its linear layers as modules: {' '.join(str(error).split())[:200]}"
        raise Malformed("lora", rule) from None
    return made
