"""Which mechanism has a proven price, under which neighbouring relation, in which rule; every other has none.

A row is a proof or its source. A mechanism that holds others is priced only if each of them is.
"""

from __future__ import annotations

from typing import Final

from ledger.mechanisms import mechanism as m
from ledger.mechanisms.decomposition import atoms, kinds_of

RULE_NAMES: Final = ("renyi", "reference", "gaussian", "catalogue")
"""The admission rules that a partition may declare; one without δ has the rule ``pure``."""
PURE: Final = "pure"
ZERO_OUT, ADD_REMOVE, REPLACE = m.RELATIONS
_ADDED: Final = (ZERO_OUT, ADD_REMOVE)
_REPLACED: Final = (ZERO_OUT, REPLACE)

_ROWS: Final = (
    ("gaussian", m.RELATIONS, "renyi", "Mironov 2017, Proposition 7; sensitivity 2 where one record is replaced"),
    ("gaussian", m.RELATIONS, "gaussian", "Dong, Roth, Su 2022, Theorem 2.7"),
    ("gaussian", _ADDED, "reference", "Poisson-sampled at probability 1"),
    (
        "laplace",
        m.RELATIONS,
        "renyi",
        "Mironov 2017, Proposition 6; log-convex in the distance, so any L1 split of it holds",
    ),
    ("laplace", _ADDED, "gaussian", "certificate from its privacy loss distribution"),
    ("laplace", m.RELATIONS, "pure", "Dwork, McSherry, Nissim, Smith 2006, Proposition 1"),
    ("discrete_gaussian", m.RELATIONS, "renyi", "Canonne, Kamath, Steinke 2020, Proposition 5 and Theorem 4"),
    ("randomised_response", _REPLACED, "renyi", "its two output laws, exactly; noise alone where zeroed out"),
    ("randomised_response", _REPLACED, "gaussian", "certificate from its privacy loss distribution"),
    ("randomised_response", _REPLACED, "pure", "the greatest ratio of its two output laws"),
    ("zcdp", m.RELATIONS, "renyi", "Bun, Steinke 2016, Definition 8.1"),
    ("pure", m.RELATIONS, "renyi", "randomised response dominates it: Kairouz, Oh, Viswanath 2015, Theorem 2.1"),
    ("pure", m.RELATIONS, "gaussian", "Dong, Roth, Su 2022: dominated by a Gaussian of the same total variation"),
    ("pure", m.RELATIONS, "pure", "its definition"),
    (
        "gdp",
        m.RELATIONS,
        "renyi",
        "Dong, Roth, Su 2022, Corollary B.6; a group of k: kμ, by Theorem 2.14",
    ),
    ("gdp", m.RELATIONS, "gaussian", "its definition"),
    ("bounded_range", m.RELATIONS, "renyi", "ε²/8-zCDP: Cesar, Rogers 2021, Lemma 3.2; or as pure, if that is less"),
    ("bounded_range", m.RELATIONS, "gaussian", "as whatever is ε-differentially private"),
    ("bounded_range", m.RELATIONS, "pure", "a range of ε around 0 is ε-differentially private: Durfee, Rogers 2019"),
    (
        "black_box",
        m.RELATIONS,
        "renyi",
        "as pure but for a part of probability δ: Kairouz, Oh, Viswanath 2015, Theorem 3.3",
    ),
    ("black_box", m.RELATIONS, "gaussian", "as pure but for a part of probability δ"),
    ("poisson_gaussian", _ADDED, "renyi", "Mironov, Talwar, Zhang 2019, Section 3.3; Zhu, Wang 2019, Theorem 5"),
    (
        "poisson_gaussian",
        _ADDED,
        "reference",
        "dominated step by step by the reference's: ledger/filters/reference_step_count.py",
    ),
    ("poisson_gaussian", _ADDED, "gaussian", "certificate from its privacy loss distribution"),
    ("sampled_without_replacement", (REPLACE,), "renyi", "Wang, Balle, Kasiviswanathan 2019, Theorem 9"),
    ("full_batch_epochs", _REPLACED, "renyi", "given the order, each record is in one batch of an epoch: one Gaussian"),
    ("full_batch_epochs", _REPLACED, "gaussian", "the same"),
    ("group", m.RELATIONS, "renyi", "Mironov 2017, Proposition 2; noise over k where noise is added to a sum"),
    ("group", m.RELATIONS, "pure", "k times: Dwork, Roth 2014, Theorem 2.2"),
    ("group", _ADDED, "gaussian", "noise over k; mixture of Gaussians when sampled: Ganesh 2024, Theorem 3.1"),
    ("repeat_and_select", m.RELATIONS, "renyi", "Papernot, Steinke 2022, Theorems 2 and 6"),
    ("composed", m.RELATIONS, "renyi", "Mironov 2017, Proposition 1"),
    ("composed", _ADDED, "reference", "each step counts by itself"),
    ("composed", m.RELATIONS, "gaussian", "Dong, Roth, Su 2022, Corollary 3.3"),
    *(
        (kind, _ADDED, "catalogue", "ticks of a potential: ledger/filters/catalogue.py")
        for kind in ("poisson_gaussian", "gaussian", "laplace", "pure", "gdp", "bounded_range", "black_box", "composed")
    ),
    ("composed", m.RELATIONS, "pure", "the sum: Dwork, Roth 2014, Theorem 3.16"),
)
PRICED: Final = {(kind, relation, rule): why for kind, relations, rule, why in _ROWS for relation in relations}
"""(mechanism, relation, rule) to proof or source; ``self_composed`` is priced as ``composed`` is."""


class NotPriced(ValueError):  # noqa: N818 - what is the case, not an error of the program
    """A rule has no proven price for a mechanism under this relation."""


def require_priced(mechanism: m.Mechanism, relation: str, rule: str) -> None:
    """Raises: NotPriced, unless the mechanism and all it holds have a row for this relation and rule."""
    kind = "composed" if isinstance(mechanism, m.SelfComposed) else mechanism.kind
    if (kind, relation, rule) not in PRICED:
        raise NotPriced(f"{mechanism.kind} under {relation} has no proven price in the rule {rule}")
    match mechanism:
        case m.Pure() | m.BlackBox() | m.Zcdp() | m.GaussianPrivate() | m.BoundedRange():
            if mechanism.relation != relation:
                raise NotPriced(f"{mechanism.kind} holds under {mechanism.relation}, and not under {relation}")
        case m.Composed():
            for part in mechanism.mechanisms:
                require_priced(part, relation, rule)
        case m.RepeatAndSelect():
            _selectable(mechanism.mechanism)
            require_priced(mechanism.mechanism, relation, rule)
        case m.Group() | m.SelfComposed():
            require_priced(mechanism.mechanism, relation, rule)
        case _:
            pass


def _selectable(mechanism: m.Mechanism) -> None:
    """Reject black boxes, whose δ every repetition would cost, and nested tuning, which takes too long to price."""
    if "repeat_and_select" in kinds_of(mechanism):
        raise NotPriced("repeat_and_select of a repeat_and_select has no proven price")
    if any(isinstance(atom, m.BlackBox) for atom in atoms(mechanism)):
        raise NotPriced("repeat_and_select of a black_box has no proven price")
