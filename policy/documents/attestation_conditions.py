"""Azure's secure-key-release grammar: conditions on the claims of an attestation, with typed equality.

    {"version":"1.0.0","anyOf":[{"authority":"https://attester.example","allOf":[
        {"claim":"x-ms-sevsnpvm-hostdata","equals":"9f86..."},
        {"claim":"x-ms-isolation-tee.x-ms-sevsnpvm-is-debuggable","equals":false}]}]}

A dot in a claim's name goes one level down. A claim that is missing, or has another type than the value it is
compared with, meets no condition but ``{"exists": false}``: ``true`` is not ``"true"``, and 1 is not true.
Source: Azure Key Vault, "Policy grammar for secure key release".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

from ledger.wire import canonical_json as c
from ledger.wire.field_types import register_type
from ledger.wire.malformed import Malformed

VERSIONS: Final = ("0.2", "1.0.0")
CONDITIONS_MAX: Final = 64
DEPTH_MAX: Final = 8
CLAIM_MAX: Final = 200
_EQUALITY: Final[dict[str, Callable[[Any, Any], bool]]] = {"equals": operator.eq, "notEquals": operator.ne}
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "less": operator.lt,
    "lessOrEquals": operator.le,
    "greater": operator.gt,
    "greaterOrEquals": operator.ge,
}
_OPERATORS: Final = (*_EQUALITY, *_ORDER, "exists")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """One claim compared with one value."""

    claim: str
    operator: str
    value: str | int | bool

    def unmet(self, claims: c.Object) -> str:
        """The unmet condition as text; empty if the claims meet it."""
        claim = _claim(claims, self.claim)
        if self.operator == "exists":
            met = (claim is not _MISSING) is self.value
        else:
            met = type(claim) is type(self.value) and (_EQUALITY | _ORDER)[self.operator](claim, self.value)
        return "" if met else f"{self.claim} {self.operator} {c.dump(self.value).decode()[:100]}"

    def required(self) -> Iterator[Condition]:
        """Itself."""
        yield self


@dataclass(frozen=True, slots=True)
class Group:
    """Conditions of which all, or any, must be met."""

    every: bool
    parts: tuple[Condition | Group, ...]

    def unmet(self, claims: c.Object) -> str:
        """The first unmet condition as text; empty if the group is met."""
        first = ""
        for part in self.parts:
            error = part.unmet(claims)
            if bool(error) is self.every:
                return error
            first = first or error
        return first

    def required(self) -> Iterator[Condition]:
        """The mandatory conditions: those of an ``allOf``, and of an ``anyOf`` with one part."""
        if self.every or len(self.parts) == 1:
            for part in self.parts:
                yield from part.required()


class ReleasePolicy(tuple[tuple[str, Group], ...]):
    """One group of conditions for each attestation authority."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read a policy of at most 64 conditions, nested at most eight deep. Raises: Malformed."""
        members = c.fields(value, "", ("anyOf", "version"))
        c.one_of(members["version"], "version", VERSIONS)
        listed = members["anyOf"]
        if not isinstance(listed, list) or not 1 <= len(listed) <= CONDITIONS_MAX:
            raise Malformed("anyOf", f"must be a list of 1 to {CONDITIONS_MAX} authorities")
        reader = _Reader()
        authorities = []
        for place, item in enumerate(listed):
            at = f"anyOf[{place}]"
            part = c.fields(item, at, ("authority",), ("allOf", "anyOf"))
            authorities.append((c.string(part["authority"], f"{at}.authority", 500), reader.group(part, at, 1)))
        return cls(authorities)

    def groups(self, authority: object) -> tuple[Group, ...]:
        """The conditions for exactly this authority; empty if it is not named."""
        return tuple(group for name, group in self if name == authority)

    def unmet(self, authority: object, claims: c.Object) -> str:
        """Why the claims do not meet it; empty if they meet the conditions of one block of their authority."""
        errors = [group.unmet(claims) for group in self.groups(authority)]
        if not errors:
            return "no block names this authority"
        return "" if "" in errors else errors[0]


class _Reader:
    """Counts conditions while it reads them, so that a policy has a bounded size however it is nested."""

    def __init__(self) -> None:
        self._left = CONDITIONS_MAX

    def group(self, members: dict[str, Any], where: str, depth: int) -> Group:
        words = [word for word in ("allOf", "anyOf") if word in members]
        if len(words) != 1:
            raise Malformed(where, "must hold one of allOf and anyOf")
        (word,) = words
        listed = members[word]
        if depth > DEPTH_MAX:
            raise Malformed(where, f"is nested deeper than {DEPTH_MAX} levels")
        if not isinstance(listed, list) or not listed:
            raise Malformed(f"{where}.{word}", "must be a list of at least one condition")
        parts = tuple(self._part(item, f"{where}.{word}[{place}]", depth) for place, item in enumerate(listed))
        return Group(word == "allOf", parts)

    def _part(self, value: object, where: str, depth: int) -> Condition | Group:
        if isinstance(value, dict) and "claim" not in value:
            return self.group(c.fields(value, where, (), ("allOf", "anyOf")), where, depth + 1)
        members = c.fields(value, where, ("claim",), _OPERATORS)
        self._left -= 1
        if self._left < 0:
            raise Malformed(where, f"is one condition more than the {CONDITIONS_MAX} allowed")
        words = [word for word in _OPERATORS if word in members]
        if len(words) != 1:
            raise Malformed(where, f"must hold one of {', '.join(_OPERATORS)}")
        (word,) = words
        return Condition(c.string(members["claim"], f"{where}.claim", CLAIM_MAX), word, _value(members, word, where))


def _value(members: dict[str, Any], word: str, where: str) -> str | int | bool:
    value, field = members[word], f"{where}.{word}"
    if word == "exists":
        return c.boolean(value, field)
    if word in _ORDER:
        return c.integer(value, field, 0, c.INTEGER_MAX)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return c.integer(value, field, -c.INTEGER_MAX, c.INTEGER_MAX)
    return c.string(value, field)


def _claim(claims: c.Object, path: str) -> object:
    """A claim by its whole name, else one level down for each dot."""
    value: object = claims
    if path in claims:
        return claims[path]
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return _MISSING
        value = value[name]
    return value


register_type(
    ReleasePolicy,
    ReleasePolicy.parse,
    None,
    {
        "properties": {"anyOf": {"minItems": 1, "type": "array"}, "version": {"enum": [*VERSIONS]}},
        "required": ["anyOf", "version"],
        "type": "object",
    },
)
