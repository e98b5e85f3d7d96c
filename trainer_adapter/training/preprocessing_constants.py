"""The constants of :mod:`trainer_adapter.job.preprocessing`: looked up, verified by receipt, and applied to records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from client.service.seen_checkpoint import known_keys
from client.service.service import Service
from ledger.commands.entry import Entry
from ledger.domain.outcomes import Code
from ledger.log.verification import verify_receipt
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import CONSTANTS, ONE_HOT, Charged, Constants, OwnStatistic
from trainer_adapter.layers.tensor_trees import TensorTree, map_tensors, tensors
from trainer_adapter.session.model_release import receipt_of

Loss = Callable[[Any, Any], Tensor]
Own = Mapping[str, Mapping[str, Tensor]]
"""Constants of a run's own statistics, by statistic and member."""
RELEASED_BYTES_MAX = 1 << 26
TOKENS: Final = "input_ids"
"""What models of Transformers call their tokens."""


@dataclass(frozen=True, slots=True)
class PreparedConstants:
    """Constants as tensors, in order; each is applied to one record by itself."""

    items: tuple[tuple[str, dict[str, Tensor]], ...] = ()

    @classmethod
    def load(
        cls, known: Iterable[Constants], service: Service, log: LogKey, own: Own | None = None
    ) -> PreparedConstants:
        """Look the constants up; ``own`` are of the run's own statistics.

        Raises:
            Malformed: for those that no released model holds, or that the run does not take; OSError, Refused.
                SeenCheckpointError is Malformed too: the service does not go on from the log that this user has seen.
        """
        return cls(tuple((constants.kind, _tensors(constants, service, log, own or {})) for constants in known))

    def inputs(self, inputs: TensorTree) -> Any:  # noqa: ANN401 - a tree like the one given
        """Inputs (records, ...) as the model sees them. Raises: Malformed, where their type is another."""
        given = inputs
        for kind, constants in self.items:
            if kind in _APPLIED:
                inputs = _in_place(kind, inputs, constants)
        return _with_categories(given, inputs, [constants for kind, constants in self.items if kind == ONE_HOT])

    def loss(self, loss: Loss) -> Loss:
        """The loss of one record, weighed by its class."""
        for kind, constants in self.items:
            if kind == "class_weights":
                loss = _weighed(loss, constants["weights"])
        return loss


def _with_categories(given: TensorTree, inputs: TensorTree, taken: list[dict[str, Tensor]]) -> TensorTree:
    """Each taken column of the ``given`` numbers becomes an input a category, behind the other columns' ``inputs``."""
    if not taken:
        return inputs
    if not isinstance(given, Tensor) or not isinstance(inputs, Tensor) or given.dim() != 2:
        raise Malformed("preprocessing", f"{ONE_HOT} is for one array of inputs, with one row of numbers a record")
    columns = [int(constants["column"].item()) for constants in taken]
    if max(columns) >= given.shape[1]:
        raise Malformed("preprocessing", f"{ONE_HOT} takes column {max(columns)}, and records have {given.shape[1]}")
    kept = [place for place in range(given.shape[1]) if place not in columns]
    # No number equals NaN, which stands for a category that was not released.
    found = [
        (given[:, column, None] == constants["values"]).to(torch.float32)
        for column, constants in zip(columns, taken, strict=True)
    ]
    return torch.cat([inputs[:, kept].to(torch.float32), *found], dim=1)


def token_tensor(inputs: TensorTree) -> Tensor | None:
    """The tensor of tokens, whole numbers: ``input_ids`` of a dictionary, or the only one; None if none is."""
    tokens = inputs.get(TOKENS) if isinstance(inputs, Mapping) else inputs
    return tokens if isinstance(tokens, Tensor) and not tokens.is_floating_point() else None


def _in_place(kind: str, inputs: TensorTree, constants: dict[str, Tensor]) -> TensorTree:
    """With the one tensor that a kind is for changed; of a dictionary's whole numbers, tokens are ``input_ids``."""
    apply, floating, rule = _APPLIED[kind]
    tokens = None if floating else token_tensor(inputs)
    places = (
        [tokens]
        if tokens is not None
        else [tensor for tensor in tensors(inputs) if tensor.is_floating_point() == floating]
    )
    if not places:
        raise Malformed("preprocessing", f"{kind} {rule}")
    if len(places) > 1:
        raise Malformed("preprocessing", f"{kind} is for one array of inputs, and these have {len(places)} of its kind")
    changed: TensorTree = map_tensors(
        lambda tensor: apply(tensor, constants) if tensor is places[0] else tensor, inputs
    )
    return changed


def _normalised(inputs: Tensor, constants: dict[str, Tensor]) -> Tensor:
    return (inputs - constants["mean"]) / constants["deviation"]


def _in_vocabulary(inputs: Tensor, constants: dict[str, Tensor]) -> Tensor:
    inside = (inputs >= 0) & (inputs < int(constants["size"].item()))
    return torch.where(inside, inputs, 0)


_APPLIED: Final[dict[str, tuple[Callable[[Tensor, dict[str, Tensor]], Tensor], bool, str]]] = {
    "normalise": (_normalised, True, "is for inputs that are no whole numbers"),
    "vocabulary": (_in_vocabulary, False, "is for tokens, which are whole numbers"),
}
"""By kind: what is done to a tensor, whether one of floating-point numbers, and the rule where there is none."""


def _weighed(loss: Loss, weights: Tensor) -> Loss:
    return lambda outputs, targets: loss(outputs, targets) * weights.to(outputs.device)[targets].sum()


def _tensors(known: Constants, service: Service, log: LogKey, own: Own) -> dict[str, Tensor]:
    if known.column is not None:
        return {**_tensors(replace(known, column=None), service, log, own), "column": torch.tensor(known.column)}
    if isinstance(known.source, OwnStatistic):
        if known.source.statistic not in own:
            raise Malformed("preprocessing", "takes a statistic of the run itself, which `epsilon train` alone does")
        return {**own[known.source.statistic]}
    if not known.values and not isinstance(known.source, Charged):
        raise Malformed("preprocessing", "takes constants from a test set, which only `epsilon train` reads: name them")
    if isinstance(known.source, Charged):
        released = _released_tensors(known.source, service, log)
        called = known.source.statistic
        names = {name: f"{called}.{name}" if called else name for name in CONSTANTS[known.kind]}
        missing = [name for name in names.values() if name not in released]
        if missing:
            raise Malformed("preprocessing", f"the model of charge {known.source.charge} has no tensor {missing[0]}")
        # Answers have 64 bits, and the records 32.
        return {name: released[of].to(torch.float32) if called else released[of] for name, of in names.items()}
    return {
        name: torch.tensor([float(value) for value in values], dtype=torch.float32) for name, values in known.values
    }


def _released_tensors(source: Charged, service: Service, log: LogKey) -> dict[str, Tensor]:
    """The tensors of a model that this ledger released for that charge, as its receipt proves.

    The receipt lies in a file, so its checkpoint is held to what was seen of the log: a release of a history that was
    given up is none.
    """
    service = service.held_to(log)
    with source.model.open("rb") as file:
        data = file.read(RELEASED_BYTES_MAX + 1)
    index, receipt = receipt_of(source.model)
    service.trust_receipt(receipt)
    recorded = service.entry(index)
    proven, _ = verify_receipt(receipt, recorded, known_keys(log))
    entry = Entry.parse(recorded)
    if index != proven or entry.kind != "model_release" or entry.code is not Code.PERMITTED:
        raise Malformed("preprocessing", f"{source.model} has no release on record")
    if (entry.request.get("charge"), entry.request.get("model")) != (source.charge, c.digest(data)):
        raise Malformed("preprocessing", f"{source.model} is not what charge {source.charge} released")
    try:
        return load(data)
    except SafetensorError:
        raise Malformed("preprocessing", f"{source.model} is no model") from None
