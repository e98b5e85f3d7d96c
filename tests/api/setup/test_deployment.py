"""`epsilon init`: from nothing to a served book with a signed call, as docs/deployment.md and each command print it."""

from __future__ import annotations

import io
import json
import re
import shlex
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, chdir
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from api.dev_issuer.issuer import DevelopmentIssuer
from api.dev_issuer.routes import create_issuer_app
from api.server.http_server import serving
from api.setup.issuer_folder import JWK_SET, fetch_issuer
from client.cli.wording.confirmation import ask_missing
from client.keys.signer import Signer
from client.profile.profile import Profile
from epsilon_ledger.__main__ import assemble
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed

PAGE: Final = Path(__file__).parents[3] / "docs" / "deployment.md"
SERVICE: Final = (
    "init", "service", "ledger", "--origin", "test.example/1", "--database", "ledger/book.sqlite",
    "--url", "http://127.0.0.1:8000", "--issuer", "http://127.0.0.1:8100=issuer.jwks",
)  # fmt: skip
PARTY: Final = (
    "init", "party", "bank", "--did", "did:web:bank.example", "--name", "Bank", "--role", "TDC",
    "--service", "http://127.0.0.1:8000", "--issuer", "http://127.0.0.1:8100",
    "--log", LogKey("test.example/1", bytes(32)).vkey,
)  # fmt: skip


def _epsilon(place: Path, words: list[str] | tuple[str, ...]) -> Result:
    with chdir(place):
        done = CliRunner().invoke(assemble(words[0]), [*words], env={"COLUMNS": "80"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def _printed(done: Result) -> list[list[str]]:
    """The words of each command that was printed, after the program."""
    lines = [shlex.split(line) for line in done.stdout.splitlines() if "epsilon_ledger" in line]
    return [words[words.index("epsilon_ledger") + 1 :] for words in lines]


def _process(place: Path, words: list[str], opened: ExitStack) -> subprocess.Popen[str]:
    """A server's real process, from when it says that it serves."""
    process = opened.enter_context(
        subprocess.Popen([sys.executable, "-m", "epsilon_ledger", *words], cwd=place, stderr=subprocess.PIPE, text=True)
    )
    opened.callback(process.terminate)
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.endswith("until interrupted.\n"):
            return process
    raise AssertionError("".join(said))


def test_the_page_leads_to_a_signed_call(tmp_path: Path) -> None:
    """In folders with blanks, on free ports; what is printed is pasted, and comes to what the page says."""
    ports = dict(zip(("8000", "8100"), map(str, _free_ports()), strict=True))
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    pages = [[_elsewhere(words, ports) for words in map(shlex.split, block.splitlines())] for block in blocks]
    printed: list[list[str]] = []
    for words in pages[0]:
        done = _epsilon(tmp_path, words)
        assert done.exit_code == 0, done.stderr
        assert not [line for line in done.stdout.splitlines() if len(line) > 80 and "epsilon_ledger" not in line]
        printed += _printed(done)
    followed = [*pages[1], *pages[2]]
    assert sorted(printed) == sorted(words for words in followed if "a clinic/claim.json" not in words)
    upgrade, serve, issuer = pages[1]
    assert _epsilon(tmp_path, upgrade).exit_code == 0
    with ExitStack() as opened:
        for words in (serve, issuer):
            _process(tmp_path, words, opened)
        for place, words in enumerate(pages[2][:2]):
            done = _epsilon(tmp_path, words)
            assert f"entry {place}" in done.stdout, done.stderr
        shown = _epsilon(tmp_path, [*pages[2][2], "--json"])
        (key,) = json.loads(shown.stdout)
    assert key["key_id"] == Signer.load(tmp_path / "a clinic" / "key.pem").key_id
    private = [*tmp_path.rglob("*.pem")]
    assert len(private) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


def _elsewhere(words: list[str], ports: dict[str, str]) -> list[str]:
    """A command of the page, with other ports and with folders that have to be quoted; without the program."""
    folders = re.compile(r"(^|=)(ledger|sro|clinic|issuer)(?=/|$)")
    named = [re.sub(r"\b(8000|8100)\b", lambda found: ports[found[0]], word) for word in words[1:]]
    verbs = 2 if named[0] == "init" else 1
    return [*named[:verbs], *(folders.sub(r"\1a \2", word) for word in named[verbs:])]


def test_nothing_is_ever_replaced(tmp_path: Path) -> None:
    """A second time each ends in one sentence, and every byte stays; without its profile a folder is completed."""
    for words, profile in ((SERVICE, "ledger/service.toml"), (PARTY, "bank/profile.toml")):
        assert _epsilon(tmp_path, words).exit_code == 0
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        done = _epsilon(tmp_path, words)
        assert done.exit_code == 2
        assert done.stderr.startswith(f"file: {profile}: exists and is never replaced")
        (tmp_path / profile).unlink()
        assert _epsilon(tmp_path, words).exit_code == 0
        assert {path: path.read_bytes() for path in before} == before
    (tmp_path / "ledger/service.toml").unlink()
    other = ["other/1" if one == "test.example/1" else one for one in SERVICE]
    assert "log.vkey: exists and is never replaced" in _epsilon(tmp_path, other).stderr


@pytest.mark.parametrize(
    ("words", "option", "value", "says"),
    [
        (SERVICE, "--origin", "", "--origin: is missing (the log's name, for ever"),
        (SERVICE, "--origin", "a b", "--origin: must be a name"),
        (SERVICE, "--url", "http://ledger.example", "--url: must be https, or http on this machine"),
        (SERVICE, "--url", "https://ledger.example", "--listen: is missing"),
        (SERVICE, "--database", "mysql://db/ledger", "--database: must be an SQLite file or a PostgreSQL database"),
        (SERVICE, "--issuer", "http://127.0.0.1:8100", "--issuer: must be NAME=FILE"),
        (PARTY, "--did", "bank", "--did: must be a DID"),
        (PARTY, "--role", "BANK", "--role"),
        (PARTY, "--service", "bank.example", "--service: must be an http or https URL"),
        (PARTY, "--issuer", "http://login.example", "--issuer: must be an https URL"),
        (PARTY, "--log", "log.vkey", "--log: must be 'name+id+key'"),
    ],
)
def test_a_mistake_is_named_as_typed_and_makes_nothing(
    words: tuple[str, ...], option: str, value: str, says: str, tmp_path: Path
) -> None:
    """Each ends with 2, with the option that was typed, and without a file."""
    place = words.index(option)
    done = _epsilon(tmp_path, [*words[: place + 1], value, *words[place + 2 :]])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"malformed: {says}"), done.stderr
    assert not [*tmp_path.iterdir()]


def test_production_takes_no_development_issuer(tmp_path: Path) -> None:
    """Its profile says so, and has no default for where it listens."""
    words = [one.replace("http://127.0.0.1:8000", "https://ledger.example") for one in SERVICE]
    done = _epsilon(tmp_path, [*words, "--listen", "127.0.0.1:8000"])
    assert "is a development issuer, which production refuses" in done.stderr
    words = [one.replace("http://127.0.0.1:8100", "https://login.example") for one in words]
    assert _epsilon(tmp_path, [*words, "--listen", "[::1]:8000"]).exit_code == 0
    text = (tmp_path / "ledger" / "service.toml").read_text(encoding="utf-8")
    assert 'host = "::1"\nport = 8000\nurl = "https://ledger.example"\nproduction = true' in text


def test_a_running_issuer_s_keys_are_fetched(tmp_path: Path) -> None:
    """Over OpenID Connect Discovery, as they are; other keys later replace no file."""
    opened = DevelopmentIssuer("http://127.0.0.1:1", "test.example/1", Signer.generate(), {}, {}, lambda: 0)
    with serving(create_issuer_app(opened)) as url:
        opened.url = url
        ids = fetch_issuer(tmp_path / "login", url)
        assert json.loads((tmp_path / "login" / JWK_SET).read_bytes()) == json.loads(opened.jwks)
        assert ids == [json.loads(opened.jwks)["keys"][0]["kid"]]
        (tmp_path / "login" / JWK_SET).write_bytes(b"other")
        with pytest.raises(FileExistsError, match="never replaced"):
            fetch_issuer(tmp_path / "login", url)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_prompts_for_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each missing option what it decides; an empty answer decides nothing."""
    monkeypatch.setattr(sys, "stdin", _Terminal("test.example/1\n\n"))
    meanings = {"--origin": "the log's name", "--url": "where it is", "--did": "who"}
    assert ask_missing({"--origin": "", "--did": "x"}, meanings) == {"--origin": "test.example/1", "--did": "x"}
    assert capsys.readouterr() == ("", "origin: the log's name\n> ")
    with pytest.raises(Malformed, match=r"--url: is missing \(where it is\)"):
        ask_missing({"--url": ""}, meanings)


def test_the_party_s_profile_is_read(tmp_path: Path) -> None:
    """By what every command reads it with; the key in it signs."""
    assert _epsilon(tmp_path, PARTY).exit_code == 0
    profile = Profile.load(tmp_path / "bank" / "profile.toml")
    assert profile.signer().jwk == json.loads((tmp_path / "bank" / "key.jwk").read_bytes())
    assert json.loads((tmp_path / "bank" / "claim.json").read_bytes())["roles"] == ["TDC"]
