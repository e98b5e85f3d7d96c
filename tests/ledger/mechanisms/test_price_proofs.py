"""The table of proven prices: each triple can be priced, every other one is refused by name."""

from fractions import Fraction
from itertools import product

import pytest

from ledger.accounting.pure_dp import pure_epsilon
from ledger.filters import Opening, Rule, choose_rule
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.price_proofs import PRICED, NotPriced, require_priced

RULES = ("renyi", "reference", "gaussian", "catalogue", "pure")
STEP = m.PoissonGaussian(Fraction(1, 100), Fraction(2), 10)
FULL = m.PoissonGaussian(Fraction(1), Fraction(2), 10)
DELTA = Fraction(1, 1000)


def opened(rule: str) -> Rule:
    """A partition's rule of each kind, with slack where black boxes have a price."""
    if rule == "pure":
        return choose_rule("renyi", Opening(Fraction(0), (Fraction(9),), None))
    slack = 1 << 40 if rule in {"renyi", "gaussian", "catalogue"} else 0
    load = FULL if rule in {"reference", "catalogue"} else None
    return choose_rule(rule, Opening(DELTA, (Fraction(9),), load, slack=slack))


def example(kind: str, relation: str, rule: str) -> m.Mechanism:
    """One of each kind, claimed for this relation, of parts that have a price under it in this rule."""
    noise = Fraction(2)
    inside: m.Mechanism = {
        "renyi": m.Gaussian(noise),
        "gaussian": m.Gaussian(noise),
        "reference": STEP,
        "catalogue": STEP,
        "pure": m.Pure(Fraction(1, 2), relation),
    }[rule]
    made: dict[str, m.Mechanism] = {
        "gaussian": m.Gaussian(noise),
        "laplace": m.Laplace(noise),
        "discrete_gaussian": m.DiscreteGaussian(noise),
        "randomised_response": m.RandomisedResponse(4, Fraction(1, 2)),
        "zcdp": m.Zcdp(relation, Fraction(1, 10), Fraction(1, 100)),
        "pure": m.Pure(Fraction(1, 2), relation),
        "gdp": m.GaussianPrivate(Fraction(1, 4), relation),
        "bounded_range": m.BoundedRange(Fraction(1, 2), relation),
        "black_box": m.BlackBox(Fraction(1, 10**6), Fraction(1, 2), relation),
        "poisson_gaussian": STEP,
        "sampled_without_replacement": m.SampledWithoutReplacement(noise, 1000, 10, 10),
        "full_batch_epochs": m.FullBatchEpochs(3, noise),
        "group": m.Group(2, inside),
        "repeat_and_select": m.RepeatAndSelect(Fraction(3), inside, "1"),
        "composed": m.Composed((inside, inside)),
        "self_composed": m.SelfComposed(2, inside),
    }
    return made[kind]


def priced(kind: str, relation: str, rule: str) -> bool:
    """Whether the table has the triple; a repetition is a composition."""
    return ("composed" if kind == "self_composed" else kind, relation, rule) in PRICED


TRIPLES = list(product(m.KINDS, m.RELATIONS, RULES))


@pytest.mark.parametrize(("kind", "relation", "rule"), TRIPLES)
def test_a_triple_has_a_proof_or_is_refused_by_name(kind: str, relation: str, rule: str) -> None:
    """Every (mechanism, relation, rule): what the table names gets a price above nothing, the rest none."""
    mechanism = example(kind, relation, rule)
    if not priced(kind, relation, rule):
        with pytest.raises(NotPriced, match=f"{kind} under {relation} has no proven price in the rule {rule}"):
            opened(rule).segments(mechanism, relation)
        return
    segments = opened(rule).segments(mechanism, relation)
    assert sum(one.steps for one in segments) > 0
    for one in segments:
        assert any(unit is None or unit > 0 for unit in one.price)


def test_every_proof_names_its_source() -> None:
    """No row of the table is empty, and none is for a kind or relation that does not exist."""
    assert len(PRICED) > 50
    for (kind, relation, rule), why in PRICED.items():
        assert kind in m.KINDS
        assert relation in m.RELATIONS
        assert rule in RULES
        assert len(why) > 7


@pytest.mark.parametrize("claimed", m.RELATIONS)
def test_a_claim_holds_under_its_own_relation_only(claimed: str) -> None:
    """What is ε-DP for added records may be 2ε for replaced ones: the claim names its relation."""
    claims = (
        m.Pure(Fraction(1), claimed),
        m.BlackBox(Fraction(1, 10**6), Fraction(1), claimed),
        m.Zcdp(claimed, Fraction(1, 10), Fraction(0)),
        m.GaussianPrivate(Fraction(1, 10), claimed),
        m.BoundedRange(Fraction(1, 10), claimed),
    )
    for relation, mechanism in product(m.RELATIONS, claims):
        for whole in (mechanism, m.Group(2, m.Composed((mechanism,)))):
            if relation == claimed:
                require_priced(whole, relation, "renyi")
            else:
                with pytest.raises(NotPriced, match=f"holds under {claimed}, and not under {relation}"):
                    require_priced(whole, relation, "renyi")


def test_a_black_box_is_not_tuned() -> None:
    """Its δ would be paid at every repetition; it is refused however deep it hides."""
    box = m.BlackBox(Fraction(1, 10**6), Fraction(1), "REPLACE_SPECIAL")
    for inner in (box, m.Group(2, box), m.Composed((m.Gaussian(Fraction(1)), m.SelfComposed(2, box)))):
        with pytest.raises(NotPriced, match="black_box"):
            require_priced(m.RepeatAndSelect(Fraction(3), inner, "0"), "REPLACE_SPECIAL", "renyi")


def test_a_tuning_is_not_tuned() -> None:
    """It would take too long to price; it is refused however deep it hides."""
    tuned = m.RepeatAndSelect(Fraction(3), m.Gaussian(Fraction(1)), "0")
    with pytest.raises(NotPriced, match="repeat_and_select of a repeat_and_select"):
        require_priced(
            m.RepeatAndSelect(Fraction(3), m.Group(2, m.Composed((tuned,))), "1"), "REPLACE_SPECIAL", "renyi"
        )


def test_what_hides_inside_is_looked_at() -> None:
    """A composition with one part that has no price has none."""
    hidden = m.Composed((m.Gaussian(Fraction(1)), m.SelfComposed(3, m.Group(2, STEP))))
    with pytest.raises(NotPriced, match="poisson_gaussian under REPLACE_ONE"):
        require_priced(hidden, "REPLACE_ONE", "renyi")
    with pytest.raises(NotPriced, match="gaussian"):
        pure_epsilon(hidden, "REPLACE_SPECIAL")
