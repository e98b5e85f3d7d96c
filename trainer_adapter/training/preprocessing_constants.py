"""The constants of :mod:`trainer_adapter.job.preprocessing`: looked up, verified by receipt, and applied to records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from trainer_adapter.job.preprocessing import CONSTANTS, Charged, Constants
from trainer_adapter.session.model_release import receipt_of

Loss = Callable[[Tensor, Tensor], Tensor]
RELEASED_BYTES_MAX = 1 << 26


@dataclass(frozen=True, slots=True)
class PreparedConstants:
    """Constants as tensors, in order; each is applied to one record by itself."""

    items: tuple[tuple[str, dict[str, Tensor]], ...] = ()

    @classmethod
    def load(cls, known: Iterable[Constants], service: Service, log: LogKey) -> PreparedConstants:
        """Look the constants up. Raises: Malformed, for those that no released model holds; OSError, Refused.

        SeenCheckpointError is Malformed too: the service does not go on from the log that this user has seen.
        """
        return cls(tuple((one.kind, _tensors(one, service, log)) for one in known))

    def inputs(self, inputs: Tensor) -> Tensor:
        """Inputs (records, ...) as the model sees them. Raises: Malformed, where their type is another."""
        for kind, constants in self.items:
            if kind == "normalise":
                if not inputs.is_floating_point():
                    raise Malformed("preprocessing", "normalise is for inputs that are no whole numbers")
                inputs = (inputs - constants["mean"]) / constants["deviation"]
            elif kind == "vocabulary":
                if inputs.is_floating_point():
                    raise Malformed("preprocessing", "vocabulary is for tokens, which are whole numbers")
                inside = (inputs >= 0) & (inputs < int(constants["size"].item()))
                inputs = torch.where(inside, inputs, 0)
        return inputs

    def loss(self, loss: Loss) -> Loss:
        """The loss of one record, weighed by its class."""
        for kind, constants in self.items:
            if kind == "class_weights":
                loss = _weighed(loss, constants["weights"])
        return loss


def _weighed(loss: Loss, weights: Tensor) -> Loss:
    return lambda outputs, targets: loss(outputs, targets) * weights.to(outputs.device)[targets].sum()


def _tensors(known: Constants, service: Service, log: LogKey) -> dict[str, Tensor]:
    if not known.values and not isinstance(known.source, Charged):
        raise Malformed("preprocessing", "takes constants from a test set, which only `epsilon train` reads: name them")
    if isinstance(known.source, Charged):
        released = _released(known.source, service, log)
        missing = [name for name in CONSTANTS[known.kind] if name not in released]
        if missing:
            raise Malformed("preprocessing", f"the model of charge {known.source.charge} has no tensor {missing[0]}")
        return {name: released[name] for name in CONSTANTS[known.kind]}
    return {name: torch.tensor([float(one) for one in values], dtype=torch.float32) for name, values in known.values}


def _released(source: Charged, service: Service, log: LogKey) -> dict[str, Tensor]:
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
