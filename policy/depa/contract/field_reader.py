"""A reader of one object of a DEPA file, field by field: an error becomes a reason, and reading goes on with None."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, Final, TypeVar

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import parse_time
from policy.depa.contract.decimal_json import content_of
from policy.depa.contract.reasons import Reasons, spelled, under

T = TypeVar("T")
TEXT_MAX: Final = 20_000
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?\Z", re.ASCII)
_MILLISECONDS: Final = re.compile(r"\.000(?=Z\Z)", re.ASCII)


class Fields:
    """An object of a file at a path. Every reader returns None if it reported an error, or if there is no value.

    Attributes:
        value: the object; empty if the value has another type.
        path: its place, as ``contract.datasets[0]``.
        numbers_in_text: whether a string that holds a number counts as one, as in a contract.
    """

    def __init__(self, value: object, path: str, reasons: Reasons, *, numbers_in_text: bool = True) -> None:
        """Report a value that is not an object."""
        self.path = path
        self.numbers_in_text = numbers_in_text
        self.reasons = reasons
        self.value: dict[str, Any] = {}
        if isinstance(value, dict):
            self.value = value
        else:
            reasons.refuse("field_type", path, value, "must be an object")

    def only(self, names: Iterable[str]) -> None:
        """Report every field of another name."""
        allowed = set(names)
        for name, value in self.value.items():
            if name not in allowed:
                self.reasons.refuse("field_unknown", under(self.path, name), value)

    def unread(self, *names: str) -> None:
        """Warn of all that these fields say, value by value: nothing here holds anyone to it."""
        for name in names:
            for path, leaf in content_of(self.value.get(name), self.at(name)):
                self.reasons.warn("term_unread", path, leaf)

    def has(self, name: str) -> bool:
        """Whether the field is present, even if null."""
        return name in self.value

    def at(self, name: str) -> str:
        """The path of a field."""
        return under(self.path, name)

    def refuse(self, code: str, name: str, more: str = "") -> None:
        """Report an error of a field, with its value."""
        self.reasons.refuse(code, self.at(name), self.value.get(name), more)

    def inner(self, name: str) -> Fields:
        """An object inside; a missing one is reported, and read as empty."""
        return self._inside(self.value[name] if self.require(name) else {}, self.at(name))

    def require(self, name: str) -> bool:
        """Whether a field is present; a missing one is reported."""
        if not self.has(name):
            self.refuse("field_missing", name)
        return self.has(name)

    def items(self, name: str, most: int, least: int = 1) -> list[Any]:
        """A list of ``least`` to ``most`` items; any other value is reported, and read as empty."""
        value = self._read_typed(name, list, "a list")
        if value is not None and not least <= len(value) <= most:
            self.refuse("list_length", name, f"{len(value)} items, not {least} to {most}")
            return []
        return value or []

    def objects(self, name: str, most: int, least: int = 1) -> Iterator[Fields]:
        """The objects of such a list, in order; an item that is not an object is reported."""
        for place, item in enumerate(self.items(name, most, least)):
            yield self._inside(item, f"{self.at(name)}[{place}]")

    def text(self, name: str, *, empty: bool = False) -> str | None:
        """A string of at most 20,000 characters."""
        value = self._read_typed(name, str, "a string")
        if value is not None and (len(value) > TEXT_MAX or not (value or empty)):
            self.refuse("text_length", name, f"must have 1 to {TEXT_MAX} characters")
            return None
        return value

    def one_of(self, name: str, choices: tuple[str, ...]) -> str | None:
        """One of a closed list of strings."""
        if not self.require(name):
            return None
        value: str = self.value[name]
        if value not in choices:
            self.refuse("value_unknown", name, f"one of {', '.join(choices)}")
            return None
        return value

    def flag(self, name: str) -> bool | None:
        """True or false; ``"true"`` and 1 are neither."""
        return self._read_typed(name, bool, "true or false")

    def name(self, name: str) -> str | None:
        """An id that an entry can hold."""
        text: str | None = self._strict(name, c.name, "name_spelling")
        return text

    def did(self, name: str) -> str | None:
        """A DID, alone or as ``{"id": DID}``, which the specification has for parties."""
        if not self.require(name):
            return None
        return read_did(self.value[name], self.at(name), self.reasons)

    def time(self, name: str) -> int | None:
        """Unix milliseconds of a whole second in UTC; ``.000`` may follow the seconds."""

        def read(value: object, field: str) -> int:
            return parse_time(_MILLISECONDS.sub("", value) if isinstance(value, str) else value, field)

        number: int | None = self._strict(name, read, "time_spelling")
        return number

    def whole(self, name: str, least: int, most: int) -> int | None:
        """An integer, as a number or as a string that holds one."""
        number = self.number(name, Fraction(least), Fraction(most))
        if number is None or number.denominator == 1:
            return None if number is None else int(number)
        self.refuse("number_out_of_range", name, "must be whole")
        return None

    def number(self, name: str, least: Fraction, most: Fraction) -> Fraction | None:
        """A number from ``least`` to ``most``, exactly; or a string that holds one, if ``numbers_in_text``."""
        if not self.require(name):
            return None
        value = self.value[name]
        if isinstance(value, bool) or not isinstance(value, int | Fraction | str | None):
            self.refuse("field_type", name, "must be a number")
        elif value is None or value == "null":
            self.refuse("number_null", name, "says null")
        elif isinstance(value, str) and not self.numbers_in_text:
            self.refuse("number_spelling", name, "must be a number, not a string that holds one")
        elif isinstance(value, str) and not _NUMBER.match(value):
            self.refuse("number_spelling", name, "must be a number")
        elif not least <= Fraction(value) <= most:
            self.refuse("number_out_of_range", name, f"must lie between {spelled(least)} and {spelled(most)}")
        else:
            return Fraction(value)
        return None

    def _inside(self, value: object, path: str) -> Fields:
        return Fields(value, path, self.reasons, numbers_in_text=self.numbers_in_text)

    def _read_typed(self, name: str, kind: type[T], what: str) -> T | None:
        if not self.require(name):
            return None
        value = self.value[name]
        if isinstance(value, kind):
            return value
        self.refuse("field_type", name, f"must be {what}")
        return None

    def _strict(self, name: str, read: Any, code: str) -> Any:  # noqa: ANN401 - whatever the reader gives
        if not self.require(name):
            return None
        try:
            return read(self.value[name], name)
        except Malformed as error:
            self.refuse(code, name, error.rule)
            return None


def read_did(value: object, path: str, reasons: Reasons) -> str | None:
    """A DID, or ``{"id": DID}``; anything else is reported, and read as None."""
    plain = value.get("id") if isinstance(value, dict) and set(value) == {"id"} else value
    try:
        return c.did(plain, path)
    except Malformed:
        reasons.refuse("did_missing", path, plain)
        return None
