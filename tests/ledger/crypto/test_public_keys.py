"""Keys that anybody could use are refused: points of small order, found here by the curves' own arithmetic."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from ledger.crypto.detached_jws import verify
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

PRIME = 2**255 - 19
D = -121665 * pow(121666, -1, PRIME) % PRIME
Point = tuple[int, int]


def _jwk(curve: str, raw: bytes) -> dict[str, str]:
    return {"crv": curve, "kty": "OKP", "x": c.base64url(raw)}


def _root(square: int) -> int | None:
    for root in (
        pow(square, (PRIME + 3) // 8, PRIME),
        pow(square, (PRIME + 3) // 8, PRIME) * pow(2, PRIME // 4, PRIME),
    ):
        if (root * root - square) % PRIME == 0:
            return root % PRIME
    return None


def _on_edwards(y: int) -> Point | None:
    x = _root((y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME)
    return None if x is None else (x, y)


def _add(a: Point, b: Point) -> Point:
    (x, y), (u, v) = a, b
    mixed = D * x * u * y * v % PRIME
    over, under = pow(1 + mixed, -1, PRIME), pow(1 - mixed, -1, PRIME)
    return (x * v + y * u) * over % PRIME, (y * v + x * u) * under % PRIME


def _times(factor: int, point: Point) -> Point:
    total = (0, 1)
    for bit in f"{factor:b}":
        total = _add(total, total)
        if bit == "1":
            total = _add(total, point)
    return total


def _eight_torsion() -> set[Point]:
    """The points whose order divides 8: any point, times the prime order of the base point."""
    order = 2**252 + 27742317777372353535851937790883648493
    found: set[Point] = {(0, 1)}
    y = 2
    while len(found) < 8:
        point = _on_edwards(y)
        if point is not None:
            torsion = _times(order, point)
            found |= {_times(factor, torsion) for factor in range(8)}
        y += 1
    return found


def _encodings(coordinate: int) -> list[bytes]:
    """Canonical or not, with either sign bit."""
    wide = [coordinate] + ([coordinate + PRIME] if coordinate + PRIME < 2**255 else [])
    return [(one | sign << 255).to_bytes(32, "little") for one in wide for sign in (0, 1)]


def test_no_ed25519_point_of_small_order_is_a_key() -> None:
    """All eight points, in every encoding that a lenient verifier reads."""
    points = _eight_torsion()
    assert len(points) == 8
    for _, y in points:
        for raw in _encodings(y):
            with pytest.raises(Malformed, match=r"key\.x: is a point of small order"):
                PublicKey.parse(_jwk("Ed25519", raw), "key", "Ed25519")


def test_what_such_a_key_would_allow() -> None:
    """Under the neutral point a signature made without any private key verifies, over whatever is said."""
    neutral = PublicKey("Ed25519", c.base64url((1).to_bytes(32, "little")))
    head = c.base64url(c.dump({"alg": "Ed25519", "b64": False, "crit": ["b64"], "kid": neutral.thumbprint}))
    forged = f"{head}..{c.base64url((1).to_bytes(32, 'little') + bytes(32))}"
    assert [verify(forged, said, neutral) for said in (b"anything", b"anything else")] == [None, None]


def test_no_x25519_point_that_gives_a_known_secret_is_a_key() -> None:
    """The map u = (1 + y)/(1 - y) gives the same points on X25519, where an exchange with them is known to all."""
    for _, y in _eight_torsion():
        u = (1 + y) * pow(1 - y, -1, PRIME) % PRIME if y != 1 else 0
        for raw in _encodings(u):
            with pytest.raises(ValueError, match="Error computing shared key"):
                X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))
            with pytest.raises(Malformed, match=r"key\.x: is a point of small order"):
                PublicKey.parse(_jwk("X25519", raw), "key", "X25519")
