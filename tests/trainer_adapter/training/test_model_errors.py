"""A model whose own Python raises on a record: the run ends in words of ours, whatever it raised."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from api.demo import digits
from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.training.attach import attach
from trainer_adapter.training.run_options import Options

OF_A_RECORD = "Mrs Rao, 47"


class OwnError(Exception):
    """One that only the model knows."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file, whose records all have a number that the model does not take."""
    with open_place(tmp_path_factory.mktemp("errors") / "place") as found:
        drawn = np.random.default_rng(1)
        inputs = drawn.random((digits.RECORDS, 64)).astype(np.float32)
        inputs[:, 0] = 911
        found.put(inputs=inputs, targets=drawn.integers(0, 10, digits.RECORDS))
        yield found


@pytest.mark.parametrize(
    ("kind", "certify"),
    [
        (AssertionError, "first_step"),
        (AttributeError, "first_step"),
        (OwnError, "first_step"),
        (SystemExit, "first_step"),
        (ValueError, "first_step"),
        (AssertionError, "always"),
    ],
)
def test_what_a_model_raises_quotes_no_record(place: Place, kind: type[BaseException], certify: str) -> None:
    """Where records pass through its Python: the step fails by the error's kind alone, and what began counts."""
    name = f"{certify.replace('_', '-')}-{kind.__name__.lower()}"
    model = nn.Linear(64, 10)

    def look(_: nn.Module, args: tuple[Any, ...]) -> None:
        if _greatest(args[0]) > 100:
            raise kind(OF_A_RECORD)

    model.register_forward_pre_hook(look)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    options, known = Options(service=place.service, engine={"certify": certify}), place.assignment(name)
    rule = rf"^step: 1 failed \({kind.__name__}\); its message may quote a record$"
    with pytest.raises(Malformed, match=rule) as found, attach(model, optimiser, cross_entropy, known, options) as run:
        next(iter(run))
    assert OF_A_RECORD not in "".join(traceback.format_exception(found.value))
    charge = place.charge(name)
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 10)


def _greatest(inputs: Tensor) -> float:
    """The greatest number of a record; nothing of a tensor without values, as where the model is traced."""
    try:
        return float(inputs.max())
    except RuntimeError:
        return 0.0
