"""Plans and mechanisms: read and written by exact inverses, hostile ones refused by name."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.canonical_json import dump, parse_canonical
from ledger.wire.malformed import Malformed
from tests.factories.mechanisms import parse_mechanism

PROBABILITIES = st.integers(1, 10**9).flatmap(lambda d: st.integers(1, d).map(lambda n: Fraction(n, d)))
NOISES = st.one_of(
    st.integers(100, 10**10).map(lambda n: Fraction(n, 10_000)),
    st.builds(Fraction, st.integers(10**3, 10**6), st.integers(1, 10**5)),
)
STEPS = st.integers(1, 10_000_000)
PLANS = st.builds(
    Plan, PROBABILITIES, NOISES, NOISES, STEPS, st.integers(1, 10_000_000), st.sampled_from(["record", "user"])
)

PLAN: dict[str, Any] = {
    "batch_size_expected": 64,
    "clipping_norm": "1",
    "kind": "dp_sgd",
    "noise_multiplier": "2.25",
    "sampler": {"kind": "poisson", "probability": "16/175"},
    "steps": 120,
    "v": 1,
}
MECHANISM: dict[str, Any] = {
    "kind": "poisson_gaussian",
    "noise_multiplier": "1.1",
    "probability": "1/186",
    "steps": 186,
    "v": 1,
}


def changed(value: dict[str, Any], path: str, new: object) -> Any:  # noqa: ANN401 - any JSON
    """A copy with one value at a dotted path changed, or taken away when ``new`` is ``...``."""
    copy = json.loads(json.dumps(value))
    at, names = copy, path.split(".")
    for name in names[:-1]:
        at = at[name]
    if new is ...:
        del at[names[-1]]
    else:
        at[names[-1]] = new
    return copy


@given(PLANS)
def test_plan_reads_back(plan: Plan) -> None:
    """Through the tagged form and through its canonical bytes; equal plans have equal digests."""
    again = Plan.of(parse_plan(parse_canonical(dump(plan.to_json()), 10_000)))
    assert again == plan
    assert again.digest == plan.digest


@given(PROBABILITIES, NOISES, STEPS)
def test_mechanism_reads_back(probability: Fraction, noise: Fraction, steps: int) -> None:
    """The formatter's exact inverse."""
    mechanism = PoissonGaussian(probability, noise, steps)
    assert parse_mechanism(mechanism.to_json()) == mechanism


@given(PLANS, PLANS)
def test_different_plans_have_different_digests(one: Plan, other: Plan) -> None:
    """The digest names the plan, all of it."""
    assert (one.digest == other.digest) == (one == other)


def test_known_plan() -> None:
    """The form in the module's docstring, byte for byte, and the mechanism that is charged for it."""
    plan = Plan.of(parse_plan(PLAN))
    assert plan.to_json() == PLAN
    assert plan.mechanism(7) == PoissonGaussian(Fraction(16, 175), Fraction(9, 4), 7)


BAD_PLANS: list[tuple[str, Any, str]] = [
    ("momentum", "0.9", "momentum"),
    ("steps", ..., "steps"),
    ("kind", "sgd", "kind"),
    ("kind", ["dp_sgd"], "kind"),
    ("v", 2, "v"),
    ("v", True, "v"),
    ("v", 1.0, "v"),
    ("v", "1", "v"),
    ("sampler.kind", "shuffle", "sampler.kind"),
    ("sampler.shard", 1, "sampler.shard"),
    ("sampler", "poisson", "sampler"),
    ("sampler.probability", "0", "sampler.probability"),
    ("sampler.probability", "1.5", "probability"),
    ("sampler.probability", "1/10000000000", "sampler.probability"),
    ("sampler.probability", "1/1000000007", "probability"),
    ("sampler.probability", 0.1, "sampler.probability"),
    ("noise_multiplier", "0", "noise_multiplier"),
    ("noise_multiplier", "0.009", "noise_multiplier"),
    ("noise_multiplier", "1000000.1", "noise_multiplier"),
    ("noise_multiplier", "1.0", "noise_multiplier"),
    ("noise_multiplier", "1e-5", "noise_multiplier"),
    ("noise_multiplier", "NaN", "noise_multiplier"),
    ("noise_multiplier", "-1", "noise_multiplier"),
    ("noise_multiplier", 1e400, "noise_multiplier"),
    ("noise_multiplier", 2, "noise_multiplier"),
    ("clipping_norm", "0", "clipping_norm"),
    ("clipping_norm", "1000000001", "clipping_norm"),
    ("clipping_norm", "1_000", "clipping_norm"),
    ("steps", 0, "steps"),
    ("steps", -1, "steps"),
    ("steps", 10_000_001, "steps"),
    ("steps", "120", "steps"),
    ("steps", 120.0, "steps"),
    ("steps", True, "steps"),
    ("batch_size_expected", 0, "batch_size_expected"),
    ("batch_size_expected", None, "batch_size_expected"),
]


@pytest.mark.parametrize(("path", "new", "field"), BAD_PLANS, ids=lambda value: repr(value)[:30])
def test_hostile_plan_is_refused_by_name(path: str, new: object, field: str) -> None:
    """One change to a good plan; the fault names the field."""
    with pytest.raises(Malformed) as fault:
        Plan.of(parse_plan(changed(PLAN, path, new)))
    assert fault.value.field == field or (path == "sampler.probability" and "probability" in fault.value.field)


BAD_MECHANISMS: list[tuple[str, Any, str]] = [
    ("kind", "exponential", "kind"),
    ("v", 2, "v"),
    ("v", True, "v"),
    ("v", 1.0, "v"),
    ("v", ..., "v"),
    ("steps", 186.0, "steps"),
    ("probability", "2", "probability"),
    ("noise_multiplier", " 7 ", "noise_multiplier"),
    ("event", {}, "event"),
]


@pytest.mark.parametrize(("path", "new", "field"), BAD_MECHANISMS, ids=lambda value: repr(value)[:30])
def test_hostile_mechanism_is_refused_by_name(path: str, new: object, field: str) -> None:
    """One change to a good mechanism; the fault names the field."""
    with pytest.raises(Malformed) as fault:
        parse_mechanism(changed(MECHANISM, path, new))
    assert fault.value.field == field


@pytest.mark.parametrize("value", [None, [], "plan", 1, [PLAN]])
def test_what_is_no_object_is_no_plan(value: object) -> None:
    """Anything but an object is refused, never a crash."""
    with pytest.raises(Malformed, match="object"):
        Plan.of(parse_plan(value))
    with pytest.raises(Malformed, match="object"):
        parse_mechanism(value)
