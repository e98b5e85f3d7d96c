"""An independent model of how commands are read: the few functions that apply a table of field rules.

It shares no code with the readers: JSON is read by the standard library alone, text is held to its rules character by
character, and the canonical bytes are written here (RFC 8785 of objects, arrays, strings, integers, booleans and null).
Mechanisms that hold others are left out; their readers have tables of their own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from fractions import Fraction
from math import gcd
from string import ascii_letters, ascii_lowercase, digits
from typing import Any, Final, NoReturn

from tests.ledger.commands.command_fields import (
    AGREEMENT,
    BODIES,
    DP_SGD,
    ENVELOPE,
    MECHANISM_PLAN,
    MECHANISMS,
    REVOKED_LOG_KEY,
    ROOM,
    SAMPLER,
)

BYTES_MAX: Final = 32_768
_P = 2**255 - 19
# With either sign: the encodings of points whose order divides 8 (RFC 8032, section 5.1.7; RFC 7748, section 6.1).
_OF_ORDER_8: Final = {
    "Ed25519": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "X25519": "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
}
_OF_ORDER_8_TOO: Final = {
    "Ed25519": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "X25519": "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
}
_P256: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_P256_B: Final = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B


class Refused(Exception):  # noqa: N818 - what it says
    """The model refuses a command."""


def read(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The command in these bytes, and its canonical bytes. Raises: Refused."""
    _require(len(data) <= BYTES_MAX)
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once, parse_float=_no, parse_constant=_no)
    except (ValueError, RecursionError):
        raise Refused from None
    _check_object(value, ENVELOPE)
    _check_object(value["body"], BODIES[value["kind"]])
    if value["kind"] == "partition":
        _require((value["body"]["unit"] == "record") == ("unit_records_max" not in value["body"]))
    canonical = write(value)
    _require(canonical == data)
    return value, canonical


def write(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """The canonical bytes of a value."""
    return _text(value).encode()


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{_text(name)}:{_text(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len({name for name, _ in pairs}) == len(pairs))
    return dict(pairs)


def _no(_: str) -> NoReturn:
    raise Refused


def _require(holds: object) -> None:
    if not holds:
        raise Refused


def _check_object(value: Any, fields: dict[str, str]) -> None:  # noqa: ANN401 - JSON
    _require(isinstance(value, dict) and value.keys() <= fields.keys())
    for name, rule in fields.items():
        optional = rule.startswith("optional ")
        if name in value:
            _check(value[name], rule.removeprefix("optional "))
        else:
            _require(optional)


def _check(value: Any, rule: str) -> None:  # noqa: ANN401 - JSON
    kind, _, rest = rule.partition(" ")
    if kind in _STRINGS:
        _require(isinstance(value, str) and _STRINGS[kind](value, rest))
    elif kind in _OTHERS:
        _OTHERS[kind](value, rest)
    else:
        raise AssertionError(rule)


def _only(text: str, allowed: str, least: int, most: int) -> bool:
    return least <= len(text) <= most and not set(text) - set(allowed)


def _is_name(text: str, _: str = "") -> bool:
    return _only(text, ascii_letters + digits + "._~-", 1, 128) and text[0] in ascii_letters + digits


def _is_did(text: str, _: str = "") -> bool:
    scheme, *parts = text.split(":")
    return (
        len(text) <= 255
        and scheme == "did"
        and 2 <= len(parts) <= 10
        and _only(parts[0], ascii_lowercase + digits, 1, 32)
        and all(_only(part, ascii_letters + digits + "._%-", 1, 200) for part in parts[1:])
    )


def _is_ref(text: str, _: str = "") -> bool:
    parts = text.split("/")
    return len(parts) == 3 and _is_did(parts[0]) and _is_name(parts[1]) and _is_name(parts[2])


def _is_text(text: str, most: str) -> bool:
    return 1 <= len(text) <= int(most) and "\0" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def _is_holder(text: str, _: str = "") -> bool:
    index = text.removeprefix("lineage:")
    return text == "global" or (text != index and _only(index, digits, 1, 32) and (index == "0" or index[0] != "0"))


def _is_number(text: str, bounds: str) -> bool:
    """A decimal of at most 18 places, or else a ratio in lowest terms; ``bounds`` are the least and the most."""
    whole, point, places = text.partition(".")
    above, slash, below = text.partition("/")
    if slash:
        good = all(_only(one, digits, 1, 18) and one[0] != "0" for one in (above, below))
        good = good and gcd(int(above), int(below)) == 1 and 10**18 % int(below) != 0
    else:
        good = _only(whole, digits, 1, 18) and (whole == "0" or whole[0] != "0")
        good = good and (not point or (_only(places, digits, 1, 18) and places[-1] != "0"))
    if not good or not bounds:
        return good
    number, (least, most) = Fraction(text), bounds.split(" ")
    return (number > 0 if least == "0<" else number >= Fraction(least)) and (most == "-" or number <= Fraction(most))


def _unbase64(text: str) -> bytes:
    """Base64url without padding, in its one spelling; nothing for anything else."""
    if not _only(text, ascii_letters + digits + "-_", 1, 10_000) or len(text) % 4 == 1:
        return b""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if base64.urlsafe_b64encode(data).decode().rstrip("=") == text else b""


def _is_integer(value: Any, bounds: str) -> None:  # noqa: ANN401 - JSON
    least, most = map(int, bounds.split(" "))
    _require(type(value) is int and least <= value <= most)


def _is_list(value: Any, rule: str) -> None:  # noqa: ANN401 - JSON
    least, most, inner = rule.split(" ", 2)
    _require(isinstance(value, list) and int(least) <= len(value) <= int(most))
    for one in value:
        _check(one, inner)
    _require(len(set(value)) == len(value))


def _is_plan(value: Any, _: str) -> None:  # noqa: ANN401 - JSON
    _require(isinstance(value, dict))
    _check_object(value, MECHANISM_PLAN if value.get("kind") == "mechanism" else DP_SGD)


def _is_mechanism(value: Any, _: str) -> None:  # noqa: ANN401 - JSON
    _require(isinstance(value, dict) and isinstance(value.get("kind"), str) and value["kind"] in MECHANISMS)
    _check_object(value, {"kind": "text 40", "v": "integer 1 1", **MECHANISMS[value["kind"]]})


def _is_key(value: Any, curve: str) -> None:  # noqa: ANN401 - JSON
    _check_object(value, {"crv": f"word {curve}", "kty": "word OKP", "x": "bytes32"})
    number = int.from_bytes(_unbase64(value["x"]), "little") % 2**255
    eighths = (int.from_bytes(bytes.fromhex(one[curve]), "little") for one in (_OF_ORDER_8, _OF_ORDER_8_TOO))
    _require(number not in {0, 1, _P - 1, _P, _P + 1, *eighths})


def _is_signer(value: Any, _: str) -> None:  # noqa: ANN401 - JSON
    """Ed25519, P-256 or RSA."""
    _require(isinstance(value, dict))
    if value.get("kty") == "EC":
        _check_object(value, {"crv": "word P-256", "kty": "word EC", "x": "bytes32", "y": "bytes32"})
        x, y = (int.from_bytes(_unbase64(value[name]), "big") for name in ("x", "y"))
        _require(x < _P256 and y < _P256 and (x**3 - 3 * x + _P256_B - y * y) % _P256 == 0)
    elif value.get("kty") == "RSA":
        _check_object(value, {"e": "word AQAB", "kty": "word RSA", "n": "text 10000"})
        modulus = _unbase64(value["n"])
        number = int.from_bytes(modulus, "big")
        _require(modulus and modulus[0] and number % 2 and 2048 <= number.bit_length() <= 4096)
    else:
        _is_key(value, "Ed25519")


_STRINGS: Final[dict[str, Callable[[str, str], bool]]] = {
    "bytes32": lambda text, _: len(text) == 43 and len(_unbase64(text)) == 32,
    "did": _is_did,
    "holder": _is_holder,
    "name": _is_name,
    "number": _is_number,
    "ref": _is_ref,
    "sha256": lambda text, _: _only(text, digits + "abcdef", 64, 64),
    "text": _is_text,
    "word": lambda text, words: text in words.split(" "),
}
_OTHERS: Final[dict[str, Callable[[Any, str], None]]] = {
    "agreement": lambda value, _: _check_object(value, AGREEMENT),
    "everyone_or": lambda value, rule: None if value == "everyone" else _check(value, rule),
    "boolean": lambda value, _: _require(isinstance(value, bool)),
    "integer": _is_integer,
    "key": _is_key,
    "list": _is_list,
    "mechanism": _is_mechanism,
    "object": lambda value, _: _require(isinstance(value, dict)),
    "plan": _is_plan,
    "revoked_log_key": lambda value, _: _check_object(value, REVOKED_LOG_KEY),
    "room": lambda value, _: _check_object(value, ROOM),
    "sampler": lambda value, _: _check_object(value, SAMPLER),
    "signer": _is_signer,
}
