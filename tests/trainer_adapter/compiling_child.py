"""Makes engines with compiled graphs as a run does, on an example, then on the records; prints what was compiled."""

from __future__ import annotations

import json
import sys
from fractions import Fraction

import torch
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.engine import Engine

RECORDS, EXAMPLE = 40, 2
PLAN = Plan(Fraction(1, 5), Fraction(1), Fraction(1), 3, 8)


def main() -> None:
    """Both engines; graphs compiled by each, the kernels, and the sum of the second."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(24, 3))
    data = torch.randn(RECORDS, 3, 6), torch.arange(RECORDS) % 3
    compiled = []
    for records in ((data[0][:EXAMPLE], data[1][:EXAMPLE]), data):
        before = counters["inductor"]["fxgraph_cache_miss"]
        engine = Engine(PLAN, model, cross_entropy, records, 8, compiled=True)
        compiled.append(counters["inductor"]["fxgraph_cache_miss"] - before)
    total = engine.clipped_sum(engine.microbatches(torch.arange(0, RECORDS, 5).numpy()))
    sys.stdout.write(json.dumps({"compiled": compiled, "kernels": dict(engine.kernels), "sum": total.tolist()}))


if __name__ == "__main__":
    main()
