"""Bounds of an issuer of access tokens: the organisations that it may name, and the roles that it may give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, Self

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

OWN_ROLES: Final = ("AUDITOR", "OPERATOR")
"""Roles that a token may give; every other role is what the ledger has on record."""
BOUND_MAX: Final = 1_024
"""Organisations that one issuer is bound to."""


@dataclass(frozen=True, slots=True)
class IssuerBounds:
    """The bounds of one issuer.

    Attributes:
        organisations: that it may name; None for all but those in ``others``.
        others: organisations for which other issuers alone may speak.
        roles: of :data:`OWN_ROLES`, those that its tokens may give.
        states_roles: whether the settings name the roles.
    """

    organisations: frozenset[str] | None = None
    others: frozenset[str] = frozenset()
    roles: tuple[str, ...] = OWN_ROLES
    states_roles: bool = False

    @classmethod
    def parse(cls, known: c.Object, where: str) -> Self:
        """Read the members ``organisations`` and ``roles`` of an issuer's settings. Raises: Malformed."""
        roles, dids = known.get("roles", [*OWN_ROLES]), None
        if not isinstance(roles, list) or not all(role in OWN_ROLES for role in roles):
            raise Malformed(f"{where}.roles", f"must be a list of none, one or both of {', '.join(OWN_ROLES)}")
        if "organisations" in known:
            named = c.strings(known["organisations"], f"{where}.organisations", BOUND_MAX)
            dids = frozenset(c.did(issuer, f"{where}.organisations") for issuer in named)
        given = tuple(role for role in OWN_ROLES if role in roles)
        return cls(dids, roles=given, states_roles="roles" in known)

    def check(self, organisation: str, roles: Iterable[str]) -> None:
        """Raises: Malformed, unless a token of this issuer may speak for an organisation, and give these roles."""
        bound = organisation in self.others if self.organisations is None else organisation not in self.organisations
        if bound:
            raise Malformed("organisation", f"the issuer may not speak for {organisation}")
        if denied := [role for role in roles if role not in self.roles]:
            raise Malformed("roles", f"the issuer may not give the role {denied[0]}")


UNBOUND: Final = IssuerBounds()
"""The bounds of an issuer that is the only one."""


def bound_apart(issuers: Mapping[str, IssuerBounds]) -> dict[str, IssuerBounds]:
    """Several issuers, by name, each with the organisations for which others alone may speak.

    Raises:
        Malformed: if two may give one role and not both name their roles.
    """
    for (first, bounds), (second, other) in combinations(issuers.items(), 2):
        for role in OWN_ROLES:
            if role in bounds.roles and role in other.roles and not (bounds.states_roles and other.states_roles):
                rule = f"{first} and {second} could both give {role}: name the roles that each may give"
                raise Malformed("serve.issuers", rule)
    named = frozenset(did for issuer in issuers.values() for did in issuer.organisations or ())
    return {name: replace(issuer, others=named) for name, issuer in issuers.items()}
