"""Tokens whose signature was verified before: remembered, and still asked whether it is their time."""

from __future__ import annotations

import pytest

from api.auth.access_tokens import TokenInvalid, Tokens
from client.http.access_tokens import CleanRoomCredentials
from client.http.jwt_claim_checks import SKEW_S
from client.keys.signer import Signer
from tests.factories.callers import LIFE_S, Everybody
from tests.factories.people import BANK_A, ORIGIN
from tests.factories.service import machine_clock


def test_a_token_believed_before_is_refused_after_its_time() -> None:
    """It holds until it expires, skew included, and not a second longer; nor before it was made."""
    clock = machine_clock()
    everybody = Everybody("https://login.example", ORIGIN, clock)
    tokens, token = Tokens([everybody.issuer()], ORIGIN, clock), everybody.token(BANK_A)
    made = clock.now
    for seconds in (0, LIFE_S - 1, LIFE_S, LIFE_S + SKEW_S - 1, 0, -SKEW_S):
        clock.now = made + seconds * 1000
        assert tokens.verify(token, lambda _: None).organisation == BANK_A
    for seconds, why in ((LIFE_S + SKEW_S, "is expired"), (-SKEW_S - 1, "in the future")):
        clock.now = made + seconds * 1000
        with pytest.raises(TokenInvalid, match=why):
            tokens.verify(token, lambda _: None)


def test_only_the_very_token_is_remembered() -> None:
    """The same claims under another signature are verified for themselves."""
    clock = machine_clock()
    everybody = Everybody("https://login.example", ORIGIN, clock)
    tokens, token = Tokens([everybody.issuer()], ORIGIN, clock), everybody.token(BANK_A)
    tokens.verify(token, lambda _: None)
    everybody.signer = Signer.generate()
    forged = f"{token.rpartition('.')[0]}.{everybody.token(BANK_A).rpartition('.')[2]}"
    with pytest.raises(TokenInvalid, match="does not verify"):
        tokens.verify(forged, lambda _: None)


def test_a_clean_room_s_token_holds_while_the_book_knows_its_key() -> None:
    """Believed once, and no longer when the key is nobody's."""
    clock, room = machine_clock(), Signer.generate()
    tokens = Tokens([], ORIGIN, clock)
    token = CleanRoomCredentials(room, ORIGIN, lambda: clock.now / 1000).token()
    keys = {room.key_id: str(room.jwk["x"])}
    assert tokens.verify(token, keys.get).key_id == room.key_id
    with pytest.raises(TokenInvalid, match="no clean room's key"):
        tokens.verify(token, lambda _: None)
