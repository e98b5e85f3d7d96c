"""What commands print: tables for people, JSON for programs, and the outcome of a signed command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from client.cli.arguments import EPOCH
from client.cli.wording.organisation_names import organisation
from ledger.command_line.printable_text import printable, printable_lines, say
from ledger.command_line.verbosity import is_verbose

if TYPE_CHECKING:
    from client.service.answers import Answer
    from ledger.wire.canonical_json import Json, Object


_TIMES: Final = frozenset({"deadline", "effective", "ends", "opened", "since", "starts", "time"})
"""Fields of answers that are Unix milliseconds."""
_CHECKING: Final = frozenset(
    {"contract", "document", "key_id", "key_release", "model", "plan", "post", "sealing", "terms", "charge"}
)
"""Fields that are digests, keys, ids of other entries, or a rule's arithmetic."""
_WORDS: Final = {
    "actor": "charged by",
    "data_key_from": "data key from",
    "delta": "δ",
    "epsilon": "ε",
    "index": "entry",
    "steps_posted": "steps posted",
}
"""Fields whose names in answers are for programs."""


def print_json(value: object) -> None:
    """One JSON value on stdout."""
    say(json.dumps(value, indent=2))


def print_outcome(answer: Answer, what: str = "", *, as_json: bool, extra: Object | None = None) -> None:
    """The outcome of a command: a sentence, or the whole answer with its receipt and ``extra`` fields."""
    for warning in answer.warnings:
        say(f"Warning: {printable(warning)}", err=True)
    body = answer.body if isinstance(answer.body, dict) else {}
    if as_json:
        names = ("body", "id", "index", "outcome", "receipt", "repeated")
        print_json({**{name: getattr(answer, name) for name in names}, **(extra or {})})
    elif answer.index is None:
        say(f"{what or answer.id}: would be {answer.outcome}; nothing was recorded")
    else:
        own = f", id {answer.id}" if what else ""
        before = ", recorded before" if answer.repeated else ""
        say(f"{what or answer.id}: {answer.outcome}, entry {answer.index}{own}{before}")
    if not as_json and "withheld" in body:
        for line in _touched(body):
            say(f"  {line}")


def _touched(body: Object) -> Iterator[str]:
    """The pending runs that a change of keys touches, and those of them that get no data key any more."""
    runs, withheld = (body[name] for name in ("runs", "withheld"))
    if not isinstance(runs, list) or not runs:
        yield "touches no pending run"
        return
    first = "" if body["pending"] == len(runs) else f", the first {len(runs)}"
    yield f"pending runs that it touches: {body['pending']}{first}: {', '.join(map(str, runs))}"
    if isinstance(withheld, list) and withheld:
        yield f"no data key yet, and given none any more, so void them: {', '.join(map(str, withheld))}"


def print_fields(value: Object) -> None:
    """A table of an object's fields; without those that only check others, unless --verbose is given."""
    shown = [(name, member) for name, member in value.items() if is_verbose() or name not in _CHECKING]
    print_rows(
        ("field", "value"), [(_WORDS.get(name, name), _field(name, value)) for name, value in shown], fold_from=1
    )


def _field(name: str, value: Json) -> str:
    if name in _TIMES and isinstance(value, int):
        return time_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(cell, value)) or "-"
    if isinstance(value, dict) and name != "terms":
        return ", ".join(f"{_WORDS.get(inner, inner)} {_field(inner, member)}" for inner, member in value.items())
    return cell(value)


def print_rows(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, fold_from: int = 0, to_stderr: bool = False
) -> None:
    """A table; long values of the columns from ``fold_from`` on are folded, never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*names)
    for column in table.columns[fold_from:]:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(Text(printable_lines(text)) for text in row))
    Console(stderr=to_stderr).print(table)


def epsilon_lines(value: Json) -> list[str]:
    """Each line of a run's ε in an answer as people read it; none where the service gives none."""
    from ledger.accounts.run_epsilon import RunEpsilon
    from ledger.wire.records import convert

    return [] if value is None else [str(line) for line in convert(tuple[RunEpsilon, ...], value, "epsilon")]


def print_exposures(found: Sequence[Object]) -> None:
    """The accounts that a lineage event would change, on stderr; before it is recorded."""
    rows = []
    for change in found:
        before, after = change["before"], change["after"]
        assert isinstance(after, dict)
        had = ", ".join(cell(each.get("used")) for each in (objects(before) or objects([before])))
        frozen = " FROZEN" if after.get("over") else ""
        whose = change.get("members")
        name = ", ".join(map(cell, whose)) if isinstance(whose, list) else "the merged lineage"
        rows.append((cell(change.get("partition")), name, had, f"{cell(after.get('used'))}{frozen}"))
    if rows:
        print_rows(("partition", "whose account", "before", "after"), rows, fold_from=4, to_stderr=True)


def print_keys(keys: Sequence[Object]) -> None:
    """Signing keys: whether each signs now, its dates, and the organisation that suspended or revoked it."""
    rows = [
        (
            cell(key.get("key_id")),
            "yes" if key.get("in_force") else "no",
            time_text(key.get("since")),
            time_text(key.get("until")),
            " and ".join(
                text
                for field, text in (
                    ("suspended_by", f"suspended by {cell(key.get('suspended_by'))}"),
                    ("revoked_by", f"revoked by entry {key.get('revoked_by')}"),
                )
                if key.get(field) is not None
            )
            or "-",
        )
        for key in keys
    ]
    print_rows(("key", "signs now", "since", "until", "taken away"), rows)


def objects(value: Json) -> list[Object]:
    """The objects in a list of an answer; none where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def time_text(value: Json) -> str:
    """A time in Unix milliseconds as people read it, in UTC."""
    if not isinstance(value, int):
        return "-"
    return (EPOCH + timedelta(milliseconds=value)).strftime("%Y-%m-%dT%H:%M:%SZ")


def cell(value: Json) -> str:
    """A value as the text of a table's cell; an organisation by its name."""
    if value is None:
        return "-"
    return printable(organisation(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
