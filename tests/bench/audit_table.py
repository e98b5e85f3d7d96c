"""What audits find on three kinds of model: ``python -m tests.bench.audit_table``.

Of each kind ten audits of a run whose noise is half of what is charged, and forty of one with the plan's noise, with
fresh coins and noise each time: of one full step, or of the page's hundred sampled steps (``--plan sampled``).
One JSON object a kind and noise: the claim, the least and the most right guesses and bound, how many bounds lay above
the claim, and at which audit the pipeline would have been frozen.
"""

from __future__ import annotations

import argparse
import json
import sys
from fractions import Fraction
from typing import Any, Final

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.audit_bound import Tally, disproves, epsilon_least
from ledger.commands.runs.audit_report import ACCUSATIONS, claim_of
from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.audit.canary_runs import MakeModel, adapted, audited, convolutional, multilayer

DELTA: Final = Fraction(1, 100_000)
GUESSES: Final = 400
ONE_STEP: Final = Plan(Fraction(1), Fraction(3, 2), Fraction(1), 1, 5_000)
"""All records in one step: what is seen of a canary is a Gaussian that its coin shifts by two thirds of a deviation."""
SAMPLED: Final = Plan(Fraction(1, 50), Fraction(4, 5), Fraction(1, 2), 100, 320)
PLANS: Final = {"one-step": (ONE_STEP, 30_000), "sampled": (SAMPLED, 30_000)}
"""With how many canaries each."""
MODELS: Final[dict[str, MakeModel]] = {"MLP": multilayer, "CNN": convolutional, "transformer, LoRA": adapted}
AUDITS: Final = ((Fraction(1, 2), 10), (Fraction(1), 40))
"""The part of the plan's noise that a run adds, and how many such runs are audited."""


def row(name: str, part: Fraction, audits: int, plan_name: str) -> dict[str, Any]:
    """The figures of one kind of model at one noise."""
    plan, canaries = PLANS[plan_name]
    claim = claim_of(reported_epsilon(plan.whole, DELTA, "REPLACE_SPECIAL"))
    reached, above, in_a_row, frozen = list[Tally](), 0, 0, 0
    for number in range(1, audits + 1):
        seen = audited(MODELS[name], plan, canaries, GUESSES, float(part))
        reached.append(seen)
        accused = disproves(seen, claim, DELTA)
        above, in_a_row = above + accused, in_a_row + 1 if accused else 0
        frozen = frozen or (number if in_a_row == ACCUSATIONS else 0)
    # More right guesses never prove less.
    reached.sort(key=lambda seen: seen.correct)
    return {
        "model": name,
        "plan": plan_name,
        "noise": str(part),
        "audits": audits,
        "epsilon_claimed": float(claim),
        "right_least": reached[0].correct,
        "right_most": reached[-1].correct,
        "bound_least": float(epsilon_least(reached[0], DELTA)),
        "bound_most": float(epsilon_least(reached[-1], DELTA)),
        "above": above,
        "frozen_by_audit": frozen or None,
    }


def main() -> None:
    """Print every row."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.audit_table")
    parser.add_argument("--model", choices=list(MODELS), help="one kind alone")
    parser.add_argument("--plan", choices=list(PLANS), default="one-step", help="what is audited")
    given = parser.parse_args()
    for name in [given.model] if given.model else MODELS:
        for part, audits in AUDITS:
            sys.stdout.write(json.dumps(row(name, part, audits, given.plan)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
