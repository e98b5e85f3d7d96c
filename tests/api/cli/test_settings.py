"""The table ``[serve]`` of a profile: proxies in front of the service, and quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.cli.settings import PROXIES_MAX, Settings
from api.http.quota_terms import QuotaTerms
from client.keys.signer import Signer
from ledger.wire.malformed import Malformed
from tests.api.server.processes import write_profile
from tests.factories.callers import Everybody
from tests.factories.people import LOG_KEY, ORIGIN
from tests.factories.service import machine_clock


def _load(folder: Path, more: str) -> Settings:
    everybody = Everybody("http://127.0.0.1:9", ORIGIN, machine_clock())
    return Settings.load(write_profile(folder, "book.sqlite", Signer(LOG_KEY), everybody, more))


def test_proxies_are_addresses(tmp_path: Path) -> None:
    """None by default; each is an address and no name."""
    assert _load(tmp_path / "one", "").proxies == ()
    assert _load(tmp_path / "two", 'proxies = ["10.0.0.7", "2001:db8::7"]').proxies == ("10.0.0.7", "2001:db8::7")


@pytest.mark.parametrize(
    "said", ['"10.0.0.7"', '["proxy.example"]', '["10.0.0.0/8"]', "[7]", f"{['10.0.0.7'] * (PROXIES_MAX + 1)}"]
)
def test_what_is_no_list_of_addresses_is_refused(tmp_path: Path, said: str) -> None:
    """And named."""
    with pytest.raises(Malformed, match=r"^serve\.proxies"):
        _load(tmp_path, f"proxies = {said}")


def test_proxies_say_who_calls_in_a_field_that_is_named(tmp_path: Path) -> None:
    """In none by default, in one of two, and where there are no proxies in none."""
    assert _load(tmp_path / "one", "").forwarded == ""
    assert _load(tmp_path / "two", 'proxies = ["10.0.0.7"]\nforwarded = "forwarded"').forwarded == "forwarded"
    for name, said in (("three", 'proxies = ["10.0.0.7"]\nforwarded = "via"'), ("four", 'forwarded = "forwarded"')):
        with pytest.raises(Malformed, match=r"^serve\.forwarded"):
            _load(tmp_path / name, said)


def test_what_is_a_jump_of_the_clock(tmp_path: Path) -> None:
    """More than ten minutes, or what the profile says: a second to a day."""
    assert _load(tmp_path / "one", "").clock_watch.jump_ms == 600_000
    assert _load(tmp_path / "two", "clock_jump_s = 30").clock_watch.jump_ms == 30_000
    for number, said in enumerate(("0", "86_401", '"30"')):
        with pytest.raises(Malformed, match=r"^serve\.clock_jump_s"):
            _load(tmp_path / f"bad {number}", f"clock_jump_s = {said}")


def test_quotas_are_those_of_the_profile(tmp_path: Path) -> None:
    """What it does not name is as usual."""
    assert _load(tmp_path / "one", "").quotas == QuotaTerms()
    changed = "quotas = {commands_per_minute = 60, streams = 2, connections_per_address = 512}"
    assert _load(tmp_path / "two", changed).quotas == QuotaTerms(
        commands_per_minute=60, streams=2, connections_per_address=512
    )


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("{commands_per_minute = 0}", "commands_per_minute"),
        ("{commands_per_minute = 1.5}", "commands_per_minute"),
        ("{commands_per_hour = 5}", "commands_per_hour"),
        ("{connections = 5}", "connections_per_address"),
        ("7", ""),
    ],
)
def test_what_is_no_quota_is_refused(tmp_path: Path, said: str, where: str) -> None:
    """And named."""
    with pytest.raises(Malformed, match=rf"^serve\.quotas\.?{where}"):
        _load(tmp_path, f"quotas = {said}")
