"""Issuers' keys in files: rotated while the service runs, bounded, and kept where the new file is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.auth.access_tokens import JWKS_BYTES_MAX, TokenInvalid, Tokens
from api.auth.jwks_files import RECHECK_S, IssuerFiles
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.callers import Everybody
from tests.factories.people import BANK_A, ORIGIN
from tests.factories.service import machine_clock

URL = "https://login.example"


class Seconds:
    """A clock that a test moves by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def _believed(tokens: Tokens, token: str) -> bool:
    try:
        return tokens.verify(token, lambda _: None).organisation == BANK_A
    except TokenInvalid:
        return False


def _jwks(*signers: Signer) -> bytes:
    return c.dump({"keys": [one.jwk for one in signers]})


def test_a_key_that_is_put_in_is_believed_and_one_that_is_taken_out_is_not(tmp_path: Path) -> None:
    """Within the time that what was read holds; a token that was believed before included."""
    clock, seconds, path = machine_clock(), Seconds(), tmp_path / "issuer.jwks"
    everybody = Everybody(URL, ORIGIN, clock)
    old, new = everybody.signer, Signer.generate()
    path.write_bytes(_jwks(old))
    tokens, first = Tokens(IssuerFiles([(URL, path)], seconds), ORIGIN, clock), everybody.token(BANK_A)
    everybody.signer = new
    second = everybody.token(BANK_A)
    assert (_believed(tokens, first), _believed(tokens, second)) == (True, False)
    path.write_bytes(_jwks(old, new))
    seconds.now = RECHECK_S - 1
    assert not _believed(tokens, second)
    seconds.now = RECHECK_S
    assert (_believed(tokens, first), _believed(tokens, second)) == (True, True)
    path.write_bytes(_jwks(new))
    seconds.now = 2 * RECHECK_S
    assert (_believed(tokens, first), _believed(tokens, second)) == (False, True)


def test_a_file_that_is_none_leaves_the_keys_as_they_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Gone, half-written, without keys or too long: a line of log, and the other issuer's new keys are read."""
    seconds, path, other = Seconds(), tmp_path / "one.jwks", tmp_path / "two.jwks"
    for file in (path, other):
        file.write_bytes(_jwks(Signer.generate()))
    files = IssuerFiles([(URL, path), ("https://other.example", other)], seconds)
    first = files()
    whole = _jwks(Signer.generate())
    for bad in (None, whole[:-3], b'{"keys":[]}', whole + b" " * JWKS_BYTES_MAX):
        path.unlink() if bad is None else path.write_bytes(bad)
        other.write_bytes(_jwks(Signer.generate()))
        before = files()
        seconds.now += RECHECK_S
        caplog.clear()
        after = files()
        assert (after[0], after[1] is before[1]) == (first[0], False)
        assert [one.levelname for one in caplog.records] == ["WARNING"]
    path.write_bytes(whole)
    seconds.now += RECHECK_S
    assert files()[0] != first[0]


def test_a_service_does_not_start_without_its_issuers_keys(tmp_path: Path) -> None:
    """What cannot be read at the start is an error, by name."""
    path = tmp_path / "issuer.jwks"
    with pytest.raises(FileNotFoundError):
        IssuerFiles([(URL, path)])
    path.write_bytes(b"{}")
    with pytest.raises(Malformed, match=r"jwks\.keys"):
        IssuerFiles([(URL, path)])
