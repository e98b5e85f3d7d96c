"""Privacy filters: the admission rules of partitions. A partition's rule is fixed for life."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from ledger.filters.capacity import Cap, NoRoom
from ledger.filters.catalogue import Catalogue
from ledger.filters.gaussian import GaussianRule
from ledger.filters.pure_dp import PureSum
from ledger.filters.reference_step_count import Reference
from ledger.filters.renyi import Renyi
from ledger.filters.rule import Coordinate, Opening, Rule
from ledger.mechanisms.price_proofs import RULE_NAMES
from ledger.wire.canonical_json import parse
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

TERMS_BYTES_MAX = 8_192
Terms: Final[Any] = Renyi | Reference | GaussianRule | PureSum | Catalogue
"""The recorded terms of every rule, distinguished by ``kind``: a new rule is registered here."""
RULES: Final[dict[str, type[Rule]]] = {rule.kind(): rule for rule in Terms.__args__}


def choose_rule(kind: str, opening: Opening) -> Rule:
    """The rule for a new partition; :meth:`Rule.cap` decides whether each cap has room. See :meth:`Rule.choose`.

    Raises:
        Malformed: for a rule that is not there, or not for such a budget. NoRoom.
    """
    if opening.delta == 0 and kind != Renyi.kind():
        raise Malformed("rule", f"must be '{Renyi.kind()}' for a budget with δ = 0")
    if kind not in RULE_NAMES:
        raise Malformed("rule", f"{kind!r} is not a rule")
    rule = RULES[kind] if opening.delta else PureSum
    if opening.slack and not rule.takes_slack:
        raise Malformed("slack", "is for black boxes, which have no price in this rule")
    return rule.choose(opening)


@lru_cache(maxsize=4_096)
def read_rule(terms: str) -> Rule:
    """The rule of an open partition from its recorded terms. Raises: Malformed."""
    rule: Rule = convert(Terms, parse(terms.encode(), TERMS_BYTES_MAX, "terms"), "terms")
    return rule


__all__ = [
    "RULES",
    "Cap",
    "Catalogue",
    "Coordinate",
    "NoRoom",
    "Opening",
    "PureSum",
    "Rule",
    "Terms",
    "choose_rule",
    "read_rule",
]
