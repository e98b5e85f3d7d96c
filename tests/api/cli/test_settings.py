"""The table ``[serve]`` of a profile: proxies in front of the service, and quotas."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from api.cli.serve_table import LEFT_OUT, NEEDED, PROXIES_MAX, ServeTable
from api.cli.settings import Settings
from api.http.quota_terms import QuotaTerms
from client.keys.signer import Signer
from ledger.wire.json_schema import json_schema
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


@pytest.mark.parametrize("name", [*NEEDED, *LEFT_OUT])
def test_each_declared_field_is_held_to_its_declaration(tmp_path: Path, name: str) -> None:
    """What its schema does not take is refused under its name, by the reader as by the published schema."""
    said = {
        **dict.fromkeys(("book", "log_key", "origin"), '"one"'),
        "host": '"127.0.0.1"',
        "port": "0",
        "issuers": '{"http://127.0.0.1:9" = "issuer.jwks"}',
    }
    path = tmp_path / "profile.toml"
    for wrong in (False, True):
        fields = {**said, name: "[[1]]"} if wrong else said
        path.write_text("\n".join(["v = 1", "[serve]", *(f"{field} = {value}" for field, value in fields.items())]))
        found = tomllib.loads(path.read_text())["serve"]
        assert jsonschema.Draft202012Validator(json_schema(ServeTable)).is_valid(found) is not wrong
        if wrong:
            with pytest.raises(Malformed, match=rf"^serve\.{name}\b"):
                Settings.load(path)
        else:
            assert Settings.load(path).origin == "one"


def test_the_page_names_each_field() -> None:
    """Of a deployment's profile: none is left out."""
    page = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", page.partition("`[serve]`, of `epsilon serve`:")[2].partition("`[issuer]`")[0])
    assert {*NEEDED, *LEFT_OUT} <= {*named}


@pytest.mark.parametrize("origin", ["a b", "a+b", "a\u00a0b"])
def test_a_name_that_no_key_can_bear_is_refused(tmp_path: Path, origin: str) -> None:
    """As soon as the profile is read, and not once a checkpoint is to be signed."""
    everybody = Everybody("http://127.0.0.1:9", ORIGIN, machine_clock())
    profile = write_profile(tmp_path, "book.sqlite", Signer(LOG_KEY), everybody, "")
    text = profile.read_text(encoding="utf-8")
    assert f'"{ORIGIN}"' in text
    profile.write_text(text.replace(f'"{ORIGIN}"', f'"{origin}"'), encoding="utf-8")
    with pytest.raises(Malformed, match=r"^serve\.origin: must have no space and no plus sign"):
        Settings.load(profile)
