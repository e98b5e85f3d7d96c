"""Canonical bytes (RFC 8785) and strict reading of them: integers and strings only, each name once.

{"body":{"charge":"run-1"},"kind":"post","v":1}
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
from collections import Counter
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias

import orjson
import rfc8785

from ledger.wire.malformed import Malformed
from ledger.wire.number_places import place_of_number

Json: TypeAlias = "str | int | bool | list[Json] | dict[str, Json] | None"
Object: TypeAlias = "dict[str, Json]"

DEPTH_MAX: Final = 16
INTEGER_MAX: Final = 2**53 - 1
_ATOMS: Final = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final = frozenset({list, dict})
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_SUBCLASS
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\Z")
# The last character of 32 bytes carries four bits; its other two are zero in the one spelling.
_KEY_BYTES = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]\Z")
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_BELOW_FOUR_BYTES: Final = bytes(range(0xF0))
"""All bytes but those that begin a character of four."""
_DID = re.compile(r"(?=.{1,255}\Z)did:[a-z0-9]{1,32}:[A-Za-z0-9._%-]{1,200}(:[A-Za-z0-9._%-]{1,200}){0,8}\Z")


def dump(value: Json) -> bytes:
    """RFC 8785 bytes of a value made of objects, arrays, strings, integers, booleans and null."""
    return _dump_plain(value) or rfc8785.dumps(value)


def _dump_plain(value: Json) -> bytes | None:
    """The same bytes, ten times as fast, if they are certainly the same; else None.

    orjson sorts names by code points (see :func:`sorts_alike`); it keeps to 53-bit integers here and escapes all
    characters of a text equally. It writes floats in its own way, so there must be none.
    """
    if type(value) not in _CONTAINERS or not _is_plain(value):
        return None
    try:
        form = orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return None
    return form if sorts_alike(form) or _names_are_ascii(value) else None


def sorts_alike(data: bytes) -> bool:
    """Whether no name in UTF-8 bytes can stand elsewhere by its code points than by its UTF-16 units.

    RFC 8785 (section 3.2.3) sorts names by UTF-16 units. The two orders differ only by characters beyond U+FFFF, whose
    UTF-8 has four bytes.
    """
    return data.isascii() or not data.translate(None, _BELOW_FOUR_BYTES)


def _names_are_ascii(container: Any) -> bool:  # noqa: ANN401 - a list or a dictionary
    """Whether all names inside are ASCII."""
    if type(container) is dict and not all(map(str.isascii, container)):
        return False
    inner = container.values() if type(container) is dict else container
    return all(_names_are_ascii(item) for item in inner if type(item) in _CONTAINERS)


def _is_plain(container: Any, levels: int = DEPTH_MAX) -> bool:  # noqa: ANN401 - a list or a dictionary
    """Whether all values inside are of the types of our JSON, on at most ``levels`` levels, its own included."""
    if levels == 1:
        return not container
    for item in container.values() if type(container) is dict else container:
        kind = type(item)
        if kind is not str and kind not in _ATOMS and (kind not in _CONTAINERS or not _is_plain(item, levels - 1)):
            return False
    return True


def spelled(value: Json) -> bytes:
    """Cache key of a parsed JSON value: fast to compute, and canonical for ASCII without floats."""
    return orjson.dumps(value, option=_OPTIONS)


def digest(data: bytes) -> str:
    """SHA-256 in lower-case hexadecimal: the name of a document beside the log."""
    return hashlib.sha256(data).hexdigest()


def parse(data: bytes, size_max: int, what: str = "") -> Json:
    """Read JSON that may hold no float, no repeated name, no lone surrogate, no U+0000 and no depth beyond 16.

    Raises:
        Malformed: naming the rule; after work bounded by ``size_max`` bytes.
    """
    if len(data) > size_max:
        raise Malformed(what, f"has {len(data)} bytes, more than the {size_max} allowed")
    try:
        value: Json = json.loads(
            data.decode("utf-8", errors="strict"),
            object_pairs_hook=_each_name_once,
            parse_float=_no_float,
            parse_constant=_no_float,
            parse_int=_bounded_integer,
        )
    except Malformed as error:
        if not error.field:
            raise Malformed(place_of_number(data.decode(), INTEGER_MAX, what), error.rule) from None
        raise error.under(what) if what else error from None
    except UnicodeDecodeError as error:
        raise Malformed(what, f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Malformed(what, f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise Malformed(what, f"is nested deeper than {DEPTH_MAX} levels") from None
    _walk(value, what, 1)
    return value


def parse_canonical(data: bytes, size_max: int, what: str = "") -> Json:
    """Read bytes that must be the RFC 8785 form of what they say, so that signed bytes have one spelling.

    Raises:
        Malformed: naming the first byte at which the canonical form differs.
    """
    if len(data) <= size_max and (plain := _parse_plain(data)) is not None:
        return plain
    value = parse(data, size_max, what)
    form = dump(value)
    if form != data:
        at = next((i for i, (a, b) in enumerate(zip(form, data, strict=False)) if a != b), min(len(form), len(data)))
        raise Malformed(what, f"is not in RFC 8785 form: byte {at} differs")
    return value


def _parse_plain(data: bytes) -> Json:
    """The value of canonical bytes, fast; None if they are not, or not certainly, canonical (``null`` too).

    The strict reader reads anything that may hold U+0000.
    A repeated name, a number out of bounds or another spelling gives other bytes when encoded again.
    """
    if b"\\u0000" in data:
        return None
    try:
        value: Json = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if _dump_plain(value) == data else None


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise Malformed(twice[:80].encode("utf-8", "replace").decode(), "is given twice")
    return seen


def _no_float(text: str) -> NoReturn:
    raise Malformed("", f"{text[:40]} is a floating-point number: write numbers as strings")


def _bounded_integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > INTEGER_MAX:
        raise Malformed("", f"{text[:40]} is beyond the integers JSON keeps exactly (2^53 - 1)")
    return int(text)


def _walk(value: Json, path: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise Malformed(path, f"is nested deeper than {DEPTH_MAX} levels")
    if isinstance(value, dict):
        for name, inner in value.items():
            _walk(name, f"{path}.{name}" if path else name, depth)
            _walk(inner, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _walk(inner, f"{path}[{place}]", depth + 1)
    elif isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise Malformed(path[:80].encode("ascii", "replace").decode(), "holds a lone surrogate")
        if "\0" in value:
            # PostgreSQL stores any character but this one in a text, and would fail in the middle of a batch.
            raise Malformed(path[:80].replace("\0", "?"), "holds the character U+0000")


def fields(value: object, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object with exactly these names. Raises: Malformed, for the first name unknown or missing."""
    value = members(value, where)
    if value.keys() == _set(required):
        return value
    for name in value:
        if name not in required and name not in optional:
            raise Malformed(f"{where}.{name[:80]}" if where else name[:80], "is not a known field")
    for name in required:
        if name not in value:
            raise Malformed(f"{where}.{name}" if where else name, "is missing")
    return value


def members(value: object, where: str) -> dict[str, Any]:
    """An object of any names. Raises: Malformed."""
    if not isinstance(value, dict):
        raise Malformed(where, "must be an object")
    return value


@lru_cache(maxsize=1_024)
def _set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


def integer(value: object, field: str, least: int, most: int) -> int:
    """An integer within bounds, not a boolean. Raises: Malformed."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(field, f"must be an integer, not {type(value).__name__}")
    if not least <= value <= most:
        raise Malformed(field, f"must be {least}" if least == most else f"must lie between {least} and {most}")
    return value


def string(value: object, field: str, longest: int = 1000) -> str:
    """A string of 1 to ``longest`` characters. Raises: Malformed."""
    if not isinstance(value, str):
        raise Malformed(field, f"must be a string, not {type(value).__name__}")
    if not 1 <= len(value) <= longest:
        raise Malformed(field, f"must have 1 to {longest} characters")
    return value


def strings(value: object, field: str, most: int) -> tuple[str, ...]:
    """A list of 1 to ``most`` different strings. Raises: Malformed."""
    if not isinstance(value, list):
        raise Malformed(field, "must be a list")
    if not 1 <= len(value) <= most:
        raise Malformed(field, f"must have 1 to {most} items")
    items = tuple(string(item, f"{field}[{place}]") for place, item in enumerate(value))
    if len(set(items)) != len(items):
        raise Malformed(field, "names an item twice")
    return items


def boolean(value: object, field: str) -> bool:
    """True or false, nothing coerced. Raises: Malformed."""
    if not isinstance(value, bool):
        raise Malformed(field, f"must be true or false, not {type(value).__name__}")
    return value


def one_of(value: object, field: str, choices: tuple[str, ...]) -> str:
    """One of a closed list. Raises: Malformed."""
    if not isinstance(value, str) or value not in choices:
        raise Malformed(field, f"must be one of {', '.join(choices)}")
    return value


def name(value: object, field: str) -> str:
    """A client-made id: 1 to 128 letters, digits, ``.``, ``_``, ``~``, ``-``. Raises: Malformed."""
    if not isinstance(value, str) or not _NAME.match(value):
        raise Malformed(field, "must be 1 to 128 letters, digits, '.', '_', '~' or '-', a letter or digit first")
    return value


def did(value: object, field: str) -> str:
    """A decentralised identifier (W3C DID Core, 3.1) of at most 255 characters. Raises: Malformed."""
    if not isinstance(value, str) or not _DID.match(value):
        raise Malformed(field, "must be a DID of at most 255 characters, as 'did:web:bank-a.example'")
    return value


def sha256(value: object, field: str) -> str:
    """A digest: 64 lower-case hexadecimal digits. Raises: Malformed."""
    if not isinstance(value, str) or not _DIGEST.match(value):
        raise Malformed(field, "must be a SHA-256 digest, 64 lower-case hexadecimal digits")
    return value


def key_bytes(value: object, field: str) -> str:
    """Thirty-two bytes in base64url without padding, strictly spelled. Raises: Malformed."""
    if isinstance(value, str) and _KEY_BYTES.match(value):
        return value
    unbase64url(value, field)
    raise Malformed(field, "must hold 32 bytes in base64url")


def base64url(raw: bytes) -> str:
    """RFC 4648, section 5, without padding."""
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URL, b"=").decode("ascii")


def unbase64url(value: object, field: str) -> bytes:
    """The bytes; each has one spelling: stray characters and loose last bits are refused. Raises: Malformed."""
    if not isinstance(value, str) or len(value) > 10_000:
        raise Malformed(field, "must be base64url text")
    try:
        # Anything that this decoder tolerates encodes to other text.
        raw = binascii.a2b_base64(value.encode("ascii").translate(_FROM_URL) + b"==")
    except ValueError:
        raise Malformed(field, "is not base64url") from None
    if base64url(raw) != value:
        raise Malformed(field, "is not base64url without padding in its one spelling")
    return raw
