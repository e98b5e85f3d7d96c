"""Who sent a request that came through proxies: the last address that is none of theirs."""

from __future__ import annotations

import pytest

from api.http.sender_address import FORWARDED, X_FORWARDED_FOR, Senders

PROXIES = ("10.0.0.7", "2001:db8:7::7")


def _of(field: str, *values: str, peer: str = "10.0.0.7") -> str:
    headers = [(field.encode(), value.encode("latin-1")) for value in values]
    return Senders(PROXIES, field).of({"client": (peer, 1), "headers": headers})


@pytest.mark.parametrize(
    ("values", "sender"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["203.0.113.5, 192.0.2.1"], "192.0.2.1"),
        (["203.0.113.5", "192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, 10.0.0.7"], "192.0.2.1"),
        (["192.0.2.1, 2001:db8:7::9"], "192.0.2.1"),
        (["192.0.2.1:4711"], "192.0.2.1"),
        (["2001:db8::1"], "2001:db8::/64"),
        (["[2001:db8::1]:4711"], "2001:db8::/64"),
        (["::ffff:192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, unknown"], "10.0.0.7"),
        (["192.0.2.1, "], "10.0.0.7"),
        (["192.0.2.1, \xff"], "10.0.0.7"),
        (["10.0.0.7"], "10.0.0.7"),
        ([], "10.0.0.7"),
    ],
)
def test_x_forwarded_for(values: list[str], sender: str) -> None:
    """With ports, brackets and several lines; what cannot be read counts for the proxy that sent it."""
    assert _of(X_FORWARDED_FOR, *values) == sender


@pytest.mark.parametrize(
    ("value", "sender"),
    [
        ("for=192.0.2.43", "192.0.2.43"),
        ("For=192.0.2.43;proto=http;by=203.0.113.43", "192.0.2.43"),
        ('for=192.0.2.43, for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::/64"),
        ('for="a, for=192.0.2.43', "192.0.2.43"),
        ("for=192.0.2.43, for=10.0.0.7;by=_p", "192.0.2.43"),
        ("for=192.0.2.43, for=unknown", "10.0.0.7"),
        ("for=_hidden", "10.0.0.7"),
        ("by=192.0.2.43", "10.0.0.7"),
    ],
)
def test_forwarded(value: str, sender: str) -> None:
    """The examples of RFC 7239, section 4, and an open quote that a caller wrote in front."""
    assert _of(FORWARDED, value) == sender


def test_from_anybody_else_the_field_is_not_read() -> None:
    """And without a field a proxy is nobody: it speaks for many."""
    assert _of(X_FORWARDED_FOR, "192.0.2.1", peer="203.0.113.5") == "203.0.113.5"
    assert Senders(PROXIES).of({"client": ("10.0.0.7", 1), "headers": []}) == ""
    assert Senders(PROXIES, FORWARDED).of({"client": None, "headers": []}) == ""
