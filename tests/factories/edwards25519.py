"""The group of Ed25519 in integers, written for the tests alone (RFC 8032, section 5.1): slow, and shares no code."""

from __future__ import annotations

import hashlib
from typing import Final

Point = tuple[int, int]
_Projective = tuple[int, int, int]
P: Final = 2**255 - 19
L: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, -1, P) % P
NEUTRAL: Final = (0, 1)


def decode(data: bytes) -> Point | None:
    """The point of 32 bytes, with y taken modulo p and a sign of x = 0 ignored; None if there is none."""
    number = int.from_bytes(data, "little")
    y, sign = (number & (2**255 - 1)) % P, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        return None
    return ((P - x) % P if x % 2 != sign else x), y


def encode(point: Point) -> bytes:
    """The canonical 32 bytes of a point."""
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def add(one: Point, other: Point) -> Point:
    """The sum."""
    return _affine(_sum((*one, 1), (*other, 1)))


def _sum(one: _Projective, other: _Projective) -> _Projective:
    # The complete law on -x² + y² = 1 + dx²y², without divisions (Bernstein et al. 2008, section 6; a = -1).
    (u, v, w), (x, y, z) = one, other
    a, b, c, d = w * z % P, u * x % P, v * y % P, (u * y + v * x) % P
    e = D * b * c % P
    f, g = (a * a - e) % P, (a * a + e) % P
    return a * f * d % P, a * g * (c + b) % P, f * g % P


def _affine(point: _Projective) -> Point:
    inverse = pow(point[2], -1, P)
    return point[0] * inverse % P, point[1] * inverse % P


def times(number: int, point: Point) -> Point:
    """A multiple."""
    total: _Projective = (0, 1, 1)
    doubled: _Projective = (*point, 1)
    while number:
        if number & 1:
            total = _sum(total, doubled)
        doubled, number = _sum(doubled, doubled), number >> 1
    return _affine(total)


def minus(point: Point) -> Point:
    """The inverse."""
    return (P - point[0]) % P, point[1]


def challenge(r: bytes, a: bytes, message: bytes) -> int:
    """SHA-512 of all three, modulo L."""
    return int.from_bytes(hashlib.sha512(r + a + message).digest(), "little") % L


def _base() -> Point:
    point = decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    assert point is not None
    return point


def _torsion() -> list[Point]:
    """The eight points of small order, as multiples of one of order 8."""
    for y in range(2, 100):
        point = decode(y.to_bytes(32, "little"))
        if point is not None:
            small = times(L, point)
            if times(4, small) != NEUTRAL:
                return [times(number, small) for number in range(8)]
    raise AssertionError


BASE: Final = _base()
TORSION: Final = _torsion()


def rule(key: bytes, signature: bytes, message: bytes) -> bool:
    """The rule in words: S < L; A decodes; the bytes of [S]B - [h]A are R's."""
    s = int.from_bytes(signature[32:], "little")
    a = decode(key)
    if s >= L or a is None or len(signature) != 64:
        return False
    return encode(add(times(s, BASE), minus(times(challenge(signature[:32], key, message), a)))) == signature[:32]


def cofactored(key: bytes, signature: bytes, message: bytes) -> bool:
    """Another rule, that of batch verification: [8]([S]B - [h]A - R) is neutral."""
    s = int.from_bytes(signature[32:], "little")
    a, r = decode(key), decode(signature[:32])
    if s >= L or a is None or r is None:
        return False
    left = add(times(s, BASE), minus(times(challenge(signature[:32], key, message), a)))
    return times(8, add(left, minus(r))) == NEUTRAL
