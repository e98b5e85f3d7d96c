"""Commands that ask a running service, and the one that starts it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.main import app as api_commands
from client.cli.main import app as client_commands
from client.keys.signer import Signer
from ledger.accounting.epsilon_report import report_epsilon
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.verifier import Balance, verify_account
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, BANK_B, SRO, CleanRoom
from tests.factories.service import ServedWorld
from tests.factories.statements import state_now


@pytest.fixture
def profile(world: ServedWorld, room: CleanRoom, tmp_path: Path) -> Iterator[Path]:
    """The bank's profile; one charge is pending."""
    del room
    world.bank.save(tmp_path / "bank.pem")
    path = tmp_path / "profile.toml"
    lines = ("v = 1", "[client]", f'service = "{world.url}"', 'key = "bank.pem"', f'actor = "{BANK_A}"')
    with world.issuing() as issuer:
        path.write_text("\n".join((*lines, f'log = "{world.log.vkey}"', f'issuer = "{issuer}"')))
        yield path


def test_account_prints_a_table_or_json(profile: Path) -> None:
    """Everybody's account and the bank's, as people and as programs read them."""
    table = CliRunner().invoke(client_commands, ["account", str(profile)], env={"COLUMNS": "200"})
    assert table.exit_code == 0
    assert all(
        word in table.stdout for word in (PARTITION, "everyone", "bank-a.example", "a budget of ε 6 at δ 0.00001")
    )
    told = CliRunner().invoke(client_commands, ["account", str(profile), PARTITION, "--json"])
    assert [one["partition"] for one in json.loads(told.stdout)] == [PARTITION]


def test_account_writes_a_proof(world: ServedWorld, profile: Path, tmp_path: Path) -> None:
    """Checked before it is written; offline it takes the log's key alone."""
    state_now(world.book)
    path = tmp_path / "account.json"
    with world.book.read() as facts:
        own = f"lineage:{facts.organisations[BANK_A].node}"
    ask = ["account", str(profile), PARTITION, "--proof", str(path), "--holder"]
    assert CliRunner().invoke(client_commands, [*ask, "global"]).exit_code == 6
    told = CliRunner().invoke(client_commands, [*ask, own])
    assert (told.exit_code, "`epsilon verify` shows" in told.stderr) == (0, True), told.output
    found = verify_account(path.read_text(), world.log)
    with world.book.read() as facts:
        account = facts.accounts[PARTITION, own]
    assert found.balance == Balance(*account.posted, *account.pending)
    missing = ["account", str(profile), PARTITION, "--proof", str(path), "--holder", "lineage:9999"]
    assert CliRunner().invoke(client_commands, missing).exit_code == 4
    assert CliRunner().invoke(client_commands, ["account", str(profile), "--proof", str(path)]).exit_code == 2


def test_account_proves_a_merged_lineage(world: ServedWorld, profile: Path, tmp_path: Path) -> None:
    """Of a bank that has merged since the statement: by its name, over HTTP, before its new account is stated."""
    world.register(BANK_B, "TDC", Signer.generate())
    state_now(world.book)
    merger: c.Object = {"organisation": BANK_B, "parents": [BANK_A, BANK_B]}
    assert world.service.submit(world.sro, SRO, "merger", merger, "merged").outcome == "permitted"
    path = tmp_path / "account.json"
    ask = ["account", str(profile), PARTITION, "--proof", str(path), "--holder", BANK_A]
    told = CliRunner().invoke(client_commands, ask)
    assert told.exit_code == 0, told.output
    found = verify_account(path.read_text(), world.log)
    with world.book.read() as facts:
        own = f"lineage:{facts.organisations[BANK_A].node}"
        account = facts.accounts[PARTITION, own]
    assert (found.holder, found.merged, found.hidden) == (own, 1, 0)
    assert found.balance == Balance(*account.posted, *account.pending)


def test_account_of_no_partition_ends_with_not_found(profile: Path) -> None:
    """Exit code 4, the sentence on stderr, nothing on stdout."""
    result = CliRunner().invoke(client_commands, ["account", str(profile), f"{PARTITION}-other"])
    assert (result.exit_code, result.stdout) == (4, "")
    assert "not_found" in result.stderr


def test_quote_tells_the_decision_without_recording_it(world: ServedWorld, profile: Path, tmp_path: Path) -> None:
    """Permitted ends with 0, denied with 3 and every reason."""
    size = world.size
    body = world.charge_body(world.contract, CleanRoom())
    path = tmp_path / "charge.json"
    path.write_bytes(c.dump(body))
    permitted = CliRunner().invoke(client_commands, ["quote", str(profile), str(path)])
    plan = Plan.of(parse_plan(body["plan"]))
    told = report_epsilon(plan.whole, Fraction(1, 100_000), "REPLACE_SPECIAL")
    line = f"ε {ceil_decimal(told.epsilon, 4)} at δ 0.00001 on {PARTITION}, by PLD (unit record, REPLACE_SPECIAL)"
    assert permitted.exit_code == 0, permitted.stderr
    assert permitted.stdout.startswith(f"The run would be admitted.\n  {line}\n")
    assert "such runs fit" in permitted.stdout
    path.write_bytes(c.dump({**body, "plan": {**plan.to_json(), "steps": 400}}))
    denied = CliRunner().invoke(client_commands, ["quote", str(profile), str(path)])
    assert (denied.exit_code, denied.stdout) == (3, "")
    assert "run_above_contract" in denied.stderr
    assert world.size == size


def test_no_service_ends_with_try_again(profile: Path) -> None:
    """Exit code 75 where nobody listens."""
    lines = profile.read_text().splitlines()
    profile.write_text("\n".join('service = "http://127.0.0.1:1"' if "service" in one else one for one in lines))
    assert CliRunner().invoke(client_commands, ["account", str(profile)]).exit_code == 75


def test_serve_refuses_every_host_but_loopback(profile: Path, world: ServedWorld) -> None:
    """One plain sentence, exit code 2, and no port is opened."""
    profile.with_name("log.pem").write_bytes(profile.with_name("bank.pem").read_bytes())
    profile.with_name("log.pem").chmod(0o600)
    files = 'book = "book.sqlite"\nlog_key = "log.pem"\norigin = "a.example"'
    issuers = f'[serve.issuers]\n"{world.everybody.url}" = "issuer.jwks"\n'
    profile.with_name("issuer.jwks").write_bytes(c.dump({"keys": [world.everybody.signer.jwk]}))
    profile.write_text(f'v = 1\n[serve]\n{files}\nhost = "0.0.0.0"\nport = 0\n{issuers}')
    result = CliRunner().invoke(api_commands, ["serve", str(profile)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "loopback" in result.stderr


@pytest.mark.parametrize("name", ["serve", "dev-issuer"])
def test_a_port_in_use_is_a_conflict(tmp_path: Path, name: str) -> None:
    """Code 5 and the port; a profile that is not there is not found, and one without its table is malformed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        Signer.generate().save(tmp_path / "log.pem")
        (tmp_path / "issuer.jwks").write_bytes(c.dump({"keys": [Signer.generate().jwk]}))
        profile = tmp_path / "profile.toml"
        where = f'host = "127.0.0.1"\nport = {port}\n'
        serve = f'[serve]\nbook = "b.sqlite"\nlog_key = "log.pem"\norigin = "a.example"\n{where}'
        issuers = '[serve.issuers]\n"http://127.0.0.1:9" = "issuer.jwks"\n'
        issuer = f'[issuer]\naudience = "a.example"\nkey = "log.pem"\n{where}[issuer.clients]\n'
        profile.write_text(f"v = 1\n{serve}{issuers}{issuer}")
        result = CliRunner().invoke(api_commands, [name, str(profile)])
    assert (result.exit_code, result.stdout) == (5, "")
    assert f"port {port} of 127.0.0.1 is in use" in result.stderr
    assert not (tmp_path / "b.sqlite").exists()
    assert CliRunner().invoke(api_commands, [name, str(tmp_path / "none.toml")]).exit_code == 4
    profile.write_text("v = 1\n")
    assert CliRunner().invoke(api_commands, [name, str(profile)]).exit_code == 2
