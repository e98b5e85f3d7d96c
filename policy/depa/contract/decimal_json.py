"""DEPA's JSON, read without losing a digit: numbers may have fractions here, as ``0.00001``, and stay exact.

Unreadable bytes raise :class:`~ledger.wire.malformed.Malformed`; a readable but wrong value becomes a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, NoReturn

from ledger.wire.malformed import Malformed
from policy.depa.contract.reasons import under

BYTES_MAX: Final = 262_144
DEPTH_MAX: Final = 32
NUMBER_MAX: Final = 40
EXPONENT_MAX: Final = 18
_REAL: Final = re.compile(r"-?([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?\Z", re.ASCII)


def parse(data: bytes, what: str) -> Any:  # noqa: ANN401 - JSON, with a Fraction where a number has one
    """JSON as objects, lists, strings, integers, fractions, booleans and null.

    Args:
        data: at most 262,144 bytes, nested at most 32 levels, each name in an object once.
        what: the file's name in errors: ``contract`` or ``pipeline``.

    Raises:
        Malformed: naming the rule, after work bounded by the number of bytes.
    """
    if len(data) > BYTES_MAX:
        raise Malformed(what, f"has {len(data)} bytes, more than the {BYTES_MAX} allowed")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_each_name_once,
            parse_float=_exact,
            parse_int=_exact,
            parse_constant=_no_constant,
        )
    except Malformed as error:
        raise error.under(what) from None
    except UnicodeDecodeError as error:
        raise Malformed(what, f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Malformed(what, f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise Malformed(what, f"is nested deeper than {DEPTH_MAX} levels") from None
    _check_depth(value, what, 1)
    return value


def leaves_in(value: Any, path: str) -> Iterator[tuple[str, str | int | Fraction | None]]:  # noqa: ANN401 - JSON
    """Every value that holds no others, with its path, in order."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves_in(inner, under(path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves_in(inner, f"{path}[{place}]")
    else:
        yield path, value


def strings_in(value: Any, path: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Every string value with its path, in order."""
    return ((place, leaf) for place, leaf in leaves_in(value, path) if isinstance(leaf, str))


def names_in(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401 - JSON
    """Every name of a member with its path and what it holds, in order."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield under(path, name), name, inner
            yield from names_in(inner, under(path, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from names_in(inner, f"{path}[{place}]")


def content_of(value: Any, path: str) -> list[tuple[str, str | int | Fraction]]:  # noqa: ANN401 - JSON
    """The leaves that say something: null, empty strings, lists and objects do not, a zero and false do."""
    return [(place, leaf) for place, leaf in leaves_in(value, path) if leaf is not None and leaf != ""]


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise Malformed(name[:80].encode("ascii", "backslashreplace").decode(), "is given twice")
        seen[name] = value
    return seen


def _exact(text: str) -> int | Fraction:
    """A JSON number exactly; an integer if it is spelled as one."""
    match = _REAL.match(text) if len(text) <= NUMBER_MAX else None
    if match is None or abs(int((match[3] or "e0")[1:])) > EXPONENT_MAX:
        raise Malformed("", f"{text[:NUMBER_MAX]} has too many digits or too great an exponent")
    return Fraction(text) if match[2] or match[3] else int(text)


def _no_constant(text: str) -> NoReturn:
    raise Malformed("", f"{text} is not a number of JSON")


def _check_depth(value: Any, what: str, depth: int) -> None:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise Malformed(what, "holds a lone surrogate")
    elif isinstance(value, dict | list):
        if depth > DEPTH_MAX:
            raise Malformed(what, f"is nested deeper than {DEPTH_MAX} levels")
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_depth(inner, what, depth + 1)
