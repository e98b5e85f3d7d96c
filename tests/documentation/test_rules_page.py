"""docs/rules.md: the numbers that it states are those that its commands print and its rules admit."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from ledger.filters import Catalogue, Opening, Rule, choose_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Gaussian, Laplace, Mechanism, PoissonGaussian
from policy.cli.plan import app
from tests.bench.utility import COUNT, COVID, LOADS, MNIST
from tests.documentation.fenced_blocks import ROOT, blocks

PAGE: Final = ROOT / "docs" / "rules.md"
HERE: Final = "tests/documentation/test_rules_page.py"
WORDS: Final = re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
EPSILON, DELTA = Fraction(3), Fraction(1, 1483)
HEAVY: Final = PoissonGaussian(Fraction(1, 1000), Fraction(1, 2), 200)
MIXTURE: Final = next(load for load in LOADS if len(load.bundle) == 2).declared("catalogue")


def fit(rule: Rule, epsilon: Fraction, run: Mechanism) -> int:
    """How many of these runs an empty account has room for."""
    one = cost(rule, run)
    rule = rule.for_first_run(one)
    return rule.runs(Loss.zero(len(rule.coordinates)), rule.cap(epsilon), one)


def cost(rule: Rule, run: Mechanism) -> Loss:
    """The loss of one run."""
    segments = rule.segments(run, "REPLACE_SPECIAL")
    return loss_of(segments, sum(one.steps for one in segments))


@cache
def renyi(load: Mechanism | None) -> Rule:
    """At the page's budget."""
    return choose_rule("renyi", Opening(DELTA, (EPSILON,), load))


@pytest.mark.soak
def test_the_prices_that_it_shows_are_those_that_are_offered(tmp_path: Path) -> None:
    """Its file, given to its command, prints its lines."""
    file, command, shown = (one for one in blocks(PAGE) if one.run_by == HERE)
    (tmp_path / file.place).write_text(file.text)
    assert [command.text.split()[:3], command.text.split()[3]] == [["epsilon", "plan", "prices"], file.place]
    printed = CliRunner().invoke(app, ["plan", "prices", str(tmp_path / file.place)])
    assert printed.exit_code == 0, printed.output
    assert printed.stdout == shown.text
    assert json.loads(file.text)["rule"] == "catalogue"


@pytest.mark.soak
@pytest.mark.parametrize("prices", [None, (1, 1)])
def test_the_answers_that_fit_beside_the_mixture(prices: tuple[int, ...] | None) -> None:
    """At the prices of whoever chooses none, and at one tick each."""
    rule = Catalogue.choose(Opening(DELTA, (EPSILON,), MIXTURE, prices=prices))
    laplace, gaussian = (fit(rule, EPSILON, one) for one in (Laplace(Fraction(10)), Gaussian(Fraction(5))))
    small, large = (", ".join(f"{one.ticks}" for one in rule.types), f"{laplace} and {gaussian}")
    stated = (
        f"{laplace} Laplace answers of scale 10 fit, and {gaussian} Gaussian ones of noise 5, at the prices {small}"
    )
    assert (stated if prices is None else f"{large} at {small}") in WORDS


@pytest.mark.soak
def test_a_gaussian_answer_of_its_own_type() -> None:
    """One MNIST run and four counts, as often as the list fixed beforehand."""
    (load,) = (one for one in LOADS if any(step == COUNT for step, _ in one.bundle))
    rule = choose_rule("catalogue", Opening(load.delta, (load.epsilon,), load.declared("catalogue")))
    times = fit(rule, load.epsilon, load.declared("catalogue"))
    assert f"answers of noise 20 fit {times} times at (3, 1e-5)" in WORDS


def test_what_renyi_admits_with_and_without_a_declaration() -> None:
    """Of the plan that is declared, of another one, of small answers, and of a plan of very little noise."""
    assert f"`renyi`, with nothing declared: {_pair(None)}" in WORDS
    declared, none = (fit(renyi(load), EPSILON, COVID) for load in (COVID, None))
    assert f"{declared} COVID runs fit if the COVID plan is declared, and {none} if nothing is" in WORDS
    wide = [choose_rule("renyi", Opening(Fraction(1, 100_000), (Fraction(6),), load)) for load in (HEAVY, None)]
    declared, none = (fit(rule, Fraction(6), HEAVY) for rule in wide)
    assert f"declared at (6, 1e-5) fits {declared} times instead of 37 ({none} undeclared)" in WORDS
    capped = (Opening(Fraction(1, 100_000), (Fraction(6), Fraction(5)), load) for load in (HEAVY, None))
    assert len({choose_rule("renyi", opening) for opening in capped}) == 1
    first, none = (fit(renyi(load), EPSILON, MNIST) for load in (COVID, None))
    after_covid = renyi(COVID).for_first_run(cost(renyi(COVID), COVID))
    shown = f"{fit(after_covid, EPSILON, MNIST)} runs of the MNIST-like plan fit once a COVID run was the first"
    assert f"{shown}, and {none} without a declaration; {first} too if an MNIST-like run is the first" in WORDS


def _pair(load: Mechanism | None) -> str:
    return " and ".join(str(fit(renyi(load), EPSILON, one)) for one in (Laplace(Fraction(10)), Gaussian(Fraction(5))))
