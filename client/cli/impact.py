"""What publishing a policy would change, as the service tells it beforehand: for people a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ledger.wire.canonical_json import Json, Object

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[str, str, str, str]
_PENDING = {"attestation": "other evidence for its key", "frozen": "frozen", "sealed": "its model sealed"}


def touched(impact: Object) -> bool:
    """Whether something that stands already would change, beyond the words of the policy."""
    return any(impact.get(name) for name in ("accounts", "contracts", "partitions", "pending", "undeclared"))


def rows(impact: Any) -> Iterator[Row]:  # noqa: ANN401 - the service's JSON
    """What changes, its name, before and after."""
    for one in impact["refused"]:
        yield "would be refused", one["code"], "-", one["text"]
    for one in impact["fields"]:
        yield "policy", one["name"], _value(one["before"]), _value(one["after"])
    for what in ("partition", "contract"):
        for one in impact[f"{what}s"]:
            yield what, one["name"], *_changed(one["before"], one["after"])
    for one in impact["accounts"]:
        word = "account FROZEN" if one["freezes"] else "account thawed" if one["thaws"] else "account"
        before, after = one["before"], one["after"]
        yield word, f"{after['holder']} of {after['partition']}", _used(before), _used(after)
    for one in impact["undeclared"]:
        yield "coalition", one, "-", "charge nothing until it is declared"
    for one in impact["pending"]:
        told = ", ".join(word for name, word in _PENDING.items() if one[name])
        yield "pending charge", one["charge"], "-", told


def summary(impact: Any) -> str:  # noqa: ANN401 - the service's JSON
    """One sentence: how much changes."""
    frozen = sum(one["freezes"] for one in impact["accounts"])
    return (
        f"{impact['policy']}, as of {impact['at']}: {len(impact['partitions'])} partitions change, "
        f"{frozen} accounts would be frozen, {len(impact['pending'])} pending charges are touched."
    )


def print_impact(impact: Object, console: Console) -> None:
    """The table, where anything changes, and the sentence."""
    from rich.table import Table
    from rich.text import Text

    found = list(rows(impact))
    if found:
        table = Table("what", "name", "before", "after")
        for row in found:
            table.add_row(*map(Text, row))
        console.print(table)
    console.print(Text(summary(impact)), soft_wrap=True)


def _changed(before: Json, after: Json) -> tuple[str, str]:
    """Of two objects, what differs."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return _value(before), _value(after)
    names = [name for name in after if before.get(name) != after[name]]
    told = [", ".join(f"{name} {_value(one.get(name))}" for name in names) for one in (before, after)]
    return told[0], told[1]


def _value(value: Json) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _used(one: Any) -> str:  # noqa: ANN401 - the service's JSON
    cap = "watched" if one["epsilon_max"] is None else f"cap {one['epsilon_max']}"
    quota = "" if one["share_max"] is None else f", quota {one['share_max']}"
    return f"{one['used']} ({cap}{quota})"
