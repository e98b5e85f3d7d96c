"""Documents as text: JSON or YAML, read strictly into the same values, with the place of every name.

    level: 1                        {"level": 1,
    budget: {epsilon_max: "8"}       "budget": {"epsilon_max": "8"}}

What begins with ``{`` is JSON (RFC 8259), everything else is YAML 1.2. Only the part of YAML that JSON can express is
read: no anchors, aliases, tags, directives or second documents, and no plain scalar that one reader takes for a string
and another for something else (``no``, ``1_000``, ``~``, ``8.5``). An error names its field, and its line and column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

import yaml

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

D = TypeVar("D")
Place = tuple[int, int]
"""Line and column, both from 1."""

NODES_MAX: Final = 50_000
"""Values in one YAML document: a policy with Levels for ten thousand datasets has 40,000; each costs microseconds."""
PIECES_MAX: Final = 200_000
"""Names, values, brackets and commas of JSON that are located; an error beyond them is reported without a place."""
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
DIGITS_MAX: Final = 17
"""The most characters of an integer within 2^53, its sign included."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_WORDS: Final[dict[str, c.Json]] = {"true": True, "false": False, "null": None}
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?0o?[0-7]+\Z")
_RESOLVER: Final = yaml.resolver.Resolver()
_STRINGS: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Text:
    """A document's value, and a function that locates its names and items, called only to report an error."""

    value: c.Json
    find: Callable[[], dict[str, Place]]

    def place(self, path: str) -> Place:
        """The place of a field, or if it is missing, of the value that would hold it."""
        places = self.find()
        while path and path not in places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return places.get(path, (1, 1))


def read_document(data: bytes, size_max: int, read: Callable[[c.Json], D]) -> D:
    """A document's bytes through ``read``; every error has its line and column. Raises: Malformed."""
    text = read_text(data, size_max)
    try:
        return read(text.value)
    except Malformed as error:
        raise type(error)(error.field, _at(error.rule, text.place(error.field))) from None


def canonical_form(data: bytes, size_max: int) -> bytes:
    """The RFC 8785 bytes of a document's value: the same for its JSON and its YAML. Raises: Malformed."""
    return c.dump(read_text(data, size_max).value)


def read_text(data: bytes, size_max: int) -> Text:
    """Read JSON or YAML after work bounded by ``size_max`` bytes. Raises: Malformed."""
    if len(data) > size_max:
        raise Malformed("", f"has {len(data)} bytes, more than the {size_max} allowed")
    return _json(data, size_max) if data.lstrip(b" \t\r\n")[:1] == b"{" else _yaml(data)


def _at(rule: str, place: Place) -> str:
    return f"{rule} (line {place[0]}, column {place[1]})"


def _json(data: bytes, size_max: int) -> Text:
    try:
        value = c.parse(data, size_max)
    except Malformed as error:
        # The strict JSON reader reports no places: locate the value at which it stopped.
        located = _locate(data.decode("utf-8", "replace"))
        path, place = located.stumble or (error.field, located.places.get(error.field, (0, 0)))
        raise Malformed(path or error.field, _at(error.rule, place) if place[0] else error.rule) from None
    return Text(value, lambda: _locate(data.decode()).places)


@dataclass(slots=True)
class _Located:
    places: dict[str, Place] = field(default_factory=dict)
    stumble: tuple[str, Place] | None = None


@dataclass(slots=True)
class _Open:
    """An object or array being read: the name or the number of the item that is next, if it is known."""

    path: str
    index: int | None
    name: str | None = None

    @property
    def here(self) -> str:
        if self.index is not None:
            return f"{self.path}[{self.index}]"
        return f"{self.path}.{self.name}" if self.path else str(self.name)


def _locate(text: str) -> _Located:
    """The places of names and items, as far as the text is JSON and not too deep."""
    located, stack = _Located(), list[_Open]()
    for piece, place in _pieces(text):
        top = stack[-1] if stack else None
        if piece in _CLOSE:
            if not stack:
                break
            stack.pop()
        elif piece in _BETWEEN:
            if top and piece == _BETWEEN[0]:
                top.index, top.name = (None, None) if top.index is None else (top.index + 1, None)
        elif top and top.index is None and top.name is None:
            top.name = _name(piece)
            if top.here in located.places:
                located.stumble = located.stumble or (top.here, place)
            located.places[top.here] = place
        else:
            _value_at(located, top.here if top else "", piece, place)
            if piece in _OPEN:
                if len(stack) > c.DEPTH_MAX:
                    break
                stack.append(_Open(top.here if top else "", 0 if piece == _OPEN[1] else None))
    return located


_OPEN, _CLOSE, _BETWEEN = ("{", "["), ("}", "]"), (",", ":")


def _value_at(located: _Located, path: str, piece: str, place: Place) -> None:
    located.places.setdefault(path, place)
    plain = piece in _OPEN or piece[0] == '"' or piece in _WORDS
    if not plain and not (_INTEGER.match(piece) and _is_exact(piece)):
        located.stumble = located.stumble or (path, place)


def _is_exact(digits: str) -> bool:
    """Whether JSON represents an integer exactly."""
    return len(digits) <= DIGITS_MAX and abs(int(digits)) <= c.INTEGER_MAX


def _pieces(text: str) -> Iterator[tuple[str, Place]]:
    line, since, line_end = 1, 0, -1
    for match in islice(_PIECE.finditer(text), PIECES_MAX):
        line += text.count("\n", since, match.start())
        line_end = max(line_end, text.rfind("\n", since, match.start()))
        since = match.start()
        yield match[0], (line, since - line_end)


def _name(piece: str) -> str:
    try:
        return str(json.loads(piece))[:80]
    except ValueError:
        return piece[:80]


def _yaml(data: bytes) -> Text:
    try:
        source = data.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        raise Malformed("", f"is not UTF-8 at byte {error.start}") from None
    try:
        return _Composer(source).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Malformed("", _at(f"is neither JSON nor YAML: {error.problem}", place)) from None
    except yaml.YAMLError as error:
        raise Malformed("", f"is neither JSON nor YAML: {str(error).splitlines()[0][:200]}") from None


class _Composer:
    """Composes values from the events of a YAML parser one by one, so that limits apply early."""

    def __init__(self, source: str) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(source, Loader=_Loader)
        self._left = NODES_MAX
        self._places: dict[str, Place] = {}

    def document(self) -> Text:
        """The one document of the stream."""
        self._next(yaml.StreamStartEvent)
        start = self._next(yaml.DocumentStartEvent)
        if start.version or start.tags:
            raise Malformed("", _at("begins with a YAML directive", (1, 1)))
        value = self._value(next(self._events), "", 1)
        self._next(yaml.DocumentEndEvent)
        self._next(yaml.StreamEndEvent)
        return Text(value, lambda: self._places)

    def _next(self, kind: type[yaml.Event]) -> Any:  # noqa: ANN401 - an event of that kind
        event = next(self._events)
        if not isinstance(event, kind):
            raise Malformed("", _at("must be one document", _place(event)))
        return event

    def _value(self, event: yaml.Event, path: str, depth: int) -> c.Json:
        place = _place(event)
        self._places.setdefault(path, place)
        self._left -= 1
        if self._left < 0:
            raise Malformed("", f"holds more than {NODES_MAX} values")
        if depth > c.DEPTH_MAX:
            raise Malformed(path, _at(f"is nested deeper than {c.DEPTH_MAX} levels", place))
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Malformed(path, _at("uses an anchor or alias: write the value out", place))
        if getattr(event, "tag", None):
            raise Malformed(path, _at("has a YAML tag", place))
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[c.Json] = []
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                items.append(self._value(item, f"{path}[{len(items)}]", depth + 1))
            return items
        if not isinstance(event, yaml.ScalarEvent):
            raise Malformed(path, _at("must be one document", place))
        return _scalar(event, path, place)

    def _mapping(self, path: str, depth: int) -> c.Json:
        mapping: dict[str, c.Json] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            place = _place(key)
            is_name = isinstance(key, yaml.ScalarEvent) and not key.anchor and not key.tag
            name = _scalar(key, path, place) if isinstance(key, yaml.ScalarEvent) and is_name else None
            if not isinstance(name, str):
                raise Malformed(path, _at("has a name that is not a plain string", place))
            inner = f"{path}.{name[:80]}" if path else name[:80]
            if name in mapping:
                raise Malformed(inner, _at("is given twice", place))
            self._places[inner] = place
            mapping[name] = self._value(next(self._events), inner, depth + 1)
        return mapping


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _scalar(event: yaml.ScalarEvent, path: str, place: Place) -> c.Json:
    """A scalar as its JSON value; a plain scalar that YAML readers interpret differently is refused."""
    text = event.value
    if not event.implicit[0]:
        return str(text)
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        if not _is_exact(text):
            raise Malformed(path, _at(f"{text[:40]} is beyond the integers JSON keeps exactly (2^53 - 1)", place))
        return int(text)
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    if _NUMBER_ELSEWHERE.match(text) or tag == "tag:yaml.org,2002:float":
        raise Malformed(path, _at(f"{text[:40]} is a floating-point number: write numbers in quotes", place))
    if tag not in _STRINGS:
        rule = f"{text[:40]!r} means different things to different readers: write it in quotes"
        raise Malformed(path, _at(rule if text else "has no value", place))
    return str(text)
