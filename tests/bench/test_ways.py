"""What the page of ways promises: a student of a few answers, and tuning beside its default, each at ε 3 in total."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.bench import pate_student, tuned_training

pytestmark = pytest.mark.bench


def test_a_student_of_400_answers_reads_96_of_100_digits() -> None:
    """At ε 3 or less; one world, whose noise is the operating system's."""
    found = pate_student.run(pate_student.Pictures.load(), pate_student.QUESTIONS, seed=0)
    assert found["accuracy"] >= 96
    assert Fraction(found["epsilon"]) <= 3


@pytest.mark.parametrize("name", ["adult", "mnist"])
def test_tuning_beats_the_untuned_default_in_four_of_five_worlds(name: str) -> None:
    """Both at ε 3 in total."""
    data = tuned_training.Data.load(name)
    plan = tuned_training.tuning_plan(len(data.governed[0]))
    worlds = [tuned_training.pair(data, plan) for _ in range(5)]
    assert sum(one["tuned_accuracy"] > one["default_accuracy"] for one in worlds) >= 4
    assert all(Fraction(one[f"{way}_epsilon"]) <= 3 for one in worlds for way in ("default", "tuned"))
