"""One run of a compiled engine by two threads, with a token of no word in one record; prints how far it came.

    python tests/trainer_adapter/compiled_run_child.py FOLDER

It prints one JSON object: the steps posted, those taken, and the limit on core dumps before the run, when it was
charged, and at its end.
"""

from __future__ import annotations

import json
import resource
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from api.demo import digits
from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.training.attach import attach
from trainer_adapter.training.run_options import Options

WORDS = 50
PLAN = Plan(Fraction(1), Fraction(16), Fraction(1), 2, digits.RECORDS)
"""Of two steps that every record is in."""


class _Words(nn.Module):
    """The mean of what a text's words score."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.words(tokens).mean(1)
        return scores


def main() -> None:
    """Train, and post."""
    # Enough for a core, so that a run that ends here would leave one, and takes the limit down itself.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    limits = [most]
    torch.set_num_threads(2)
    with open_place(Path(sys.argv[1])) as place:
        drawn = np.random.default_rng(1)
        tokens = drawn.integers(0, WORDS, (digits.RECORDS, 64))
        tokens[3, 5] = WORDS
        place.put(inputs=tokens, targets=drawn.integers(0, 10, digits.RECORDS))
        model = _Words()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.3)

        def say(line: str) -> None:
            if line.startswith("charge words is pending"):
                limits.append(max(resource.getrlimit(resource.RLIMIT_CORE)))

        options = Options(service=place.service, say=say, engine={"compiled": True})
        with attach(model, optimiser, cross_entropy, place.assignment("words", PLAN), options) as run:
            taken = list(run)
        limits.append(max(resource.getrlimit(resource.RLIMIT_CORE)))
        charge = place.charge("words")
        assert charge is not None
        finite = all(bool(one.isfinite().all()) for one in model.parameters())
        told = {"finite": finite, "limits": limits, "posted": charge.steps_posted, "taken": len(taken)}
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
