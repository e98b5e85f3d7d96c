"""Logging in with a browser: a real issuer, a real service, and every answer that is not the one to this login."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import httpx
import msgspec
import pytest
from typer.testing import CliRunner, Result

from api.dev_issuer import issuer as dev_issuer
from client.cli.main import app as client_commands
from client.http.problems import Refused, Unreachable
from client.login.authorization_code import log_in
from client.login.code_request import CodeRequest
from client.login.discovery import Metadata
from client.login.redirect_listener import listening
from client.profile.profile import Profile
from client.profile.token_store import Login, LoginFile
from ledger.domain.exit_codes import ExitCode
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import commands
from tests.factories.browser import CALLBACK, Browser, with_query
from tests.factories.people import BANK_A, HOSPITAL, SRO
from tests.factories.service import ServedWorld

HERE: Final = "tests/client/login/test_authorization_code.py"
ROOT: Final = Path(__file__).parents[3]
COUNCIL: Final = "did:web:council.example"
PEOPLE: Final = {
    "asha": dev_issuer.Person(COUNCIL, ("AUDITOR",)),
    "omar": dev_issuer.Person(COUNCIL, ("OPERATOR",)),
    "bina": dev_issuer.Person(BANK_A),
}
SECONDS: Final = 30


@dataclass(frozen=True)
class Desk:
    """A person's profile, and the issuer it names."""

    profile: Path
    issuer: str

    def log_in(self, browser: Callable[[str], object] | None = None, wait_s: float = SECONDS) -> Login:
        """Log in as the command does, without keeping it."""
        return log_in(Profile.load(self.profile), _nobody_told, browser or Browser("asha"), wait_s=wait_s)

    def refused(self, browser: Callable[[str], object]) -> str:
        """The sentence of a login that fails as such."""
        with pytest.raises(Refused) as caught:
            self.log_in(browser)
        assert (caught.value.code, caught.value.exit_code) == ("login_failed", 6)
        return caught.value.detail

    def run(self, *words: str) -> Result:
        """A command of the client's room."""
        return CliRunner().invoke(client_commands, [*words], env={"COLUMNS": "200"})


def _nobody_told(_url: str) -> None:
    """The browser is here."""


@pytest.fixture(scope="module")
def issuer(quiet: ServedWorld) -> Iterator[str]:
    """The issuer that the service believes, with people."""
    with quiet.issuing(PEOPLE) as url:
        yield url


@pytest.fixture
def desk(quiet: ServedWorld, issuer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A profile without a key; what is kept of it goes into a folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = tmp_path / "an auditor.toml"
    lines = ("v = 1", "[client]", f'service = "{quiet.url}"', f'log = "{quiet.log.vkey}"', f'issuer = "{issuer}"')
    path.write_text("\n".join((*lines, 'client_id = "epsilon"\n')))
    return Desk(path, issuer)


def test_an_auditor_logs_in_and_reads(desk: Desk) -> None:
    """The service believes the token; what is told of the login holds none of it."""
    login = desk.log_in()
    LoginFile(desk.profile).write(login)
    shown = desk.run("lineage", "show", str(desk.profile), BANK_A, "--json")
    assert (shown.exit_code, [one["organisation"] for one in json.loads(shown.stdout)["nodes"]]) == (0, [BANK_A])
    assert desk.run("account", str(desk.profile), "--json").stdout == "[]\n"
    assert login.subject == "asha"
    assert login.access_token not in repr(login)


def test_who_logs_in_decides_what_may_be_read(desk: Desk) -> None:
    """An operator sees no budgets; somebody without a role comes as the organisation, and signs nothing either."""
    LoginFile(desk.profile).write(desk.log_in(Browser("omar")))
    assert desk.run("account", str(desk.profile)).exit_code == 6
    LoginFile(desk.profile).write(desk.log_in(Browser("bina")))
    assert desk.run("account", str(desk.profile), "--json").stdout == "[]\n"


def test_the_command_opens_a_browser_and_keeps_the_token_to_itself(desk: Desk, tmp_path: Path) -> None:
    """As a process, with a browser that the environment names; then another process reads with what was kept."""
    script = "import sys; from tests.factories.browser import Browser; Browser('asha')(sys.argv[1])"
    browser = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} %s"
    done = _epsilon("login", str(desk.profile), "--json", BROWSER=browser)
    reported = json.loads(done.stdout)
    assert (done.returncode, reported["subject"], reported["issuer"]) == (0, "asha", desk.issuer)
    assert f"{desk.issuer}/authorize?" in done.stderr
    (kept,) = tmp_path.glob("settings/*/logins/*")
    token = json.loads(kept.read_bytes())["access_token"]
    assert token not in done.stdout + done.stderr
    read = _epsilon("lineage", "show", str(desk.profile), BANK_A, "--json")
    assert (read.returncode, BANK_A in read.stdout, token in read.stdout + read.stderr) == (0, True, False)


@pytest.fixture
def control_c() -> Iterator[None]:
    """What is started heeds it. A shell has its background jobs ignore it, and what they start ignores it too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("control_c")
def test_control_c_ends_the_wait(desk: Desk, tmp_path: Path) -> None:
    """Nothing is kept, and no trace of Python's is shown."""
    command = [sys.executable, "-m", "epsilon_ledger", "login", str(desk.profile), "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        assert any("/authorize?" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert (process.returncode, "Traceback" in rest) == (130, False)
    assert not (tmp_path / "settings").exists()


@pytest.mark.parametrize("at", ["/authorize", CALLBACK])
@pytest.mark.parametrize("state", ["x" * 43, "", None])
def test_an_answer_without_our_state_is_none(desk: Desk, at: str, state: str | None) -> None:
    """Changed on the way there or on the way back, empty, or left out: it is turned away, and the next one counts."""
    others = Browser("bina", _changing(at, state=state))

    def both(url: str) -> None:
        others(url)
        Browser("asha")(url)

    assert desk.log_in(both).subject == "asha"
    assert others.pages[-1].status_code == 400


def test_the_request_believes_no_answer_without_its_state() -> None:
    """Even if the listener gave it one: before its code is looked at, or its error."""
    issuer = Metadata("https://a.example", "https://a.example/a", "https://a.example/t", "k", names_itself=False)
    request = CodeRequest.fresh("epsilon", "http://127.0.0.1:9/callback", "urn:log", "openid")
    assert request.code_in({"code": "real", "state": request.state}, issuer) == "real"
    for answer in ({"code": "real"}, {"error": "x", "state": ""}, {"code": "real", "state": request.state[:-1]}):
        with pytest.raises(Refused, match=r"\(state\)"):
            request.code_in(answer, issuer)


@pytest.mark.parametrize("nonce", ["x" * 43, "", None])
def test_an_id_token_without_our_nonce_is_none(desk: Desk, nonce: str | None) -> None:
    """The issuer was asked with another, or with none: the code may be of somebody else's login."""
    assert "id_token.nonce" in desk.refused(Browser("asha", _changing("/authorize", nonce=nonce)))


@pytest.mark.parametrize("name", ["https://other.example", "", None])
def test_another_issuer_s_answer_is_none(desk: Desk, name: str | None) -> None:
    """RFC 9207: this issuer says that it names itself, so an answer without a name is refused too."""
    assert "(iss)" in desk.refused(Browser("asha", _changing(CALLBACK, iss=name)))


def test_an_issuer_by_another_name_is_refused(desk: Desk) -> None:
    """It answers, and calls itself otherwise than the profile does; no browser is opened."""
    desk.profile.write_text(desk.profile.read_text().replace(desk.issuer, f"{desk.issuer}/"))
    with pytest.raises(Malformed, match="which the profile names"):
        desk.log_in(_unopened)


@pytest.mark.parametrize("url", ["http://login.example", "ftp://127.0.0.1", "login.example"])
def test_an_issuer_without_tls_is_not_asked(desk: Desk, url: str) -> None:
    """But on this machine; the field is named."""
    desk.profile.write_text(desk.profile.read_text().replace(desk.issuer, url))
    with pytest.raises(Malformed) as caught:
        desk.log_in(_unopened)
    assert caught.value.field == "client.issuer"


def test_a_code_that_was_used_gets_no_token(desk: Desk) -> None:
    """Whoever caught it on its way and tried it, without our verifier, gets none either."""

    def used(url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        if "code" in query:
            form = {"client_id": "epsilon", "grant_type": "authorization_code", "code_verifier": "v" * 43}
            caught = httpx.post(f"{desk.issuer}/token", data={**form, "code": query["code"]}, trust_env=False)
            assert caught.json()["error"] == "invalid_grant"
        return url

    assert "invalid_grant" in desk.refused(Browser("asha", used))


def test_another_s_code_gets_no_token(desk: Desk) -> None:
    """A code of the same issuer and client, put under our state: it was not asked for with our challenge."""
    theirs: list[str] = []

    def swapped(url: str) -> str:
        code = dict(parse_qsl(urlsplit(url).query)).get("code")
        if code is None:
            return url
        theirs.append(code)
        return with_query(url, code=theirs[0])

    def elsewhere(url: str) -> str:
        return swapped(with_query(url, code_challenge="x" * 43) if "/authorize" in url else url)

    with pytest.raises(Refused):
        desk.log_in(Browser("asha", elsewhere))
    assert "invalid_grant" in desk.refused(Browser("bina", swapped))
    assert len(theirs) == 2


def test_who_says_no_is_not_logged_in(desk: Desk) -> None:
    """The issuer's own word is told."""
    assert "access_denied" in desk.refused(Browser("-"))


def test_nobody_is_waited_for_for_ever(desk: Desk) -> None:
    """Nobody opens the URL: it ends with try again, when the time is over."""
    with pytest.raises(Unreachable, match="within 0 s") as caught:
        desk.log_in(_unopened, wait_s=0)
    assert caught.value.exit_code is ExitCode.RETRY


def test_what_is_no_answer_is_turned_away_and_the_wait_goes_on(desk: Desk) -> None:
    """A page that is not there, parameters twice or too many, a form; then the answer."""
    seen: list[int] = []

    def probed(url: str) -> str:
        if urlsplit(url).path == CALLBACK:
            here = url.partition("?")[0]
            requested = ("?code=a&code=b", "?", "?" + "&".join(f"p{one}=1" for one in range(40)))
            wrong = [here.replace(CALLBACK, "/favicon.ico"), *(f"{here}{query}" for query in requested)]
            seen.extend(httpx.get(one, trust_env=False).status_code for one in wrong)
            seen.append(httpx.post(url, trust_env=False).status_code)
        return url

    browser = Browser("asha", probed)
    assert desk.log_in(browser).subject == "asha"
    assert seen == [404, 400, 400, 400, 501]
    assert browser.pages[-1].status_code == 200
    assert browser.pages[-1].headers["referrer-policy"] == "no-referrer"


def test_the_first_answer_counts() -> None:
    """What comes after it is turned away, and changes nothing."""
    with listening() as redirect:
        redirect.expect("a")
        reported = [
            httpx.get(f"{redirect.url}?{one}", trust_env=False).status_code for one in ("state=a&x=1", "state=a")
        ]
        assert (reported, redirect.wait(SECONDS)) == ([200, 410], {"state": "a", "x": "1"})
        with pytest.raises(Unreachable):
            redirect.wait(0)


@pytest.mark.parametrize("state", ["", "?x=1", "?state=", "?state=b", "?state=aa", "?state=%00%F0%9F%98%80", "?code=a"])
def test_no_number_of_others_answers_takes_the_place_of_ours(state: str) -> None:
    """A page or program that finds the port is turned away, however often it comes; the wait names it when it ends."""
    with listening() as redirect, httpx.Client(trust_env=False) as page:
        assert page.get(f"{redirect.url}?state=a").status_code == 400
        redirect.expect("a")
        assert {page.get(f"{redirect.url}{state}").status_code for _ in range(100)} == {400}
        with pytest.raises(Unreachable, match=r"answers to another login \(state\) were turned away"):
            redirect.wait(0)
        assert page.get(f"{redirect.url}?state=a&code=real").status_code == 200
        assert redirect.wait(SECONDS) == {"code": "real", "state": "a"}


def test_a_login_is_kept_in_a_file_of_its_owner(desk: Desk) -> None:
    """Mode 0600 in a folder of mode 0700, written again by the next login, gone after logout."""
    file = LoginFile(desk.profile)
    for name in ("asha", "bina"):
        file.write(desk.log_in(Browser(name)))
        assert (file.path.stat().st_mode & 0o777, file.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert [one.name for one in file.path.parent.iterdir()] == [file.path.name]
        assert json.loads(file.path.read_bytes())["subject"] == name
    out = desk.run("logout", str(desk.profile))
    assert (out.exit_code, out.stdout, file.path.exists()) == (0, "Logged out.\n", False)
    assert desk.run("logout", str(desk.profile)).stdout == "Not logged in.\n"


def _expired(login: Login, _file: LoginFile, _desk: Desk) -> Login:
    return msgspec.structs.replace(login, expires_s=1)


def _opened_up(login: Login, file: LoginFile, _desk: Desk) -> Login:
    file.write(login)
    file.path.chmod(0o640)
    return login


def _cut(login: Login, file: LoginFile, _desk: Desk) -> Login:
    file.write(login)
    file.path.write_bytes(file.path.read_bytes()[:-9])
    return login


def _moved(login: Login, file: LoginFile, desk: Desk) -> Login:
    file.write(login)
    desk.profile.write_text(desk.profile.read_text().replace('"epsilon"', '"another"'))
    return login


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (None, "not logged in"),
        (_expired, "the login of asha has expired"),
        (_opened_up, "chmod 600"),
        (_cut, "cannot be used"),
        (_moved, "the profile has changed"),
    ],
    ids=["none", "expired", "readable", "cut", "profile"],
)
def test_without_a_login_that_holds_the_sentence_says_what_to_type(
    desk: Desk, spoil: Callable[[Login, LoginFile, Desk], Login] | None, says: str
) -> None:
    """Exit code 6, nothing on stdout, nothing asked of the service."""
    if spoil is not None:
        file = LoginFile(desk.profile)
        login = spoil(desk.log_in(), file, desk)
        if not file.path.exists():
            file.write(login)
    reported = desk.run("account", str(desk.profile))
    assert (reported.exit_code, reported.stdout) == (6, "")
    assert says in reported.stderr
    assert f"login_needed: {says}" in reported.stderr or spoil in {_opened_up, _cut}
    assert f"run `epsilon login '{desk.profile}'`" in reported.stderr


def test_a_token_that_the_service_does_not_believe_leads_to_a_login(desk: Desk) -> None:
    """As after another start of the issuer with another key."""
    login = desk.log_in()
    LoginFile(desk.profile).write(msgspec.structs.replace(login, access_token=login.access_token[:-8] + "AAAAAAAA"))
    reported = desk.run("account", str(desk.profile))
    assert reported.exit_code == 6
    assert "token_invalid" in reported.stderr
    assert "epsilon login" in reported.stderr


SIGNING: Final = (
    ("key", "claim", "PROFILE", "--name", "A council", "--role", "SRO"),
    ("key", "grant", "PROFILE", "release-1"),
    ("contract", "sign", "PROFILE", "contract.json"),
    ("contract", "enter", "PROFILE", "contract.json"),
    ("policy", "publish", "PROFILE", "policy.json"),
    ("charge", "make", "PROFILE", "body.json"),
    ("charge", "void", "PROFILE", "run-1"),
    ("quote", "PROFILE", "body.json"),
    ("lineage", "merge", "PROFILE", SRO, BANK_A, HOSPITAL),
    ("dataset", "retire", "PROFILE", f"{HOSPITAL}/digits/2026-q4"),
)


@pytest.mark.parametrize("words", SIGNING, ids=lambda words: "-".join(words[:2]))
def test_what_has_to_be_signed_is_told_that_there_is_no_key(
    desk: Desk, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence and exit code 6, whether somebody is logged in or not."""
    monkeypatch.chdir(desk.profile.parent)
    Path("body.json").write_text("{}")
    for kind in ("contract", "policy"):
        Path(f"{kind}.json").write_text(f'{{"kind": "{kind}"}}')
    reported = desk.run(*(str(desk.profile) if word == "PROFILE" else word for word in words))
    assert (reported.exit_code, reported.stdout) == (6, "")
    assert f"no_key: {desk.profile} is a person's profile: it has no key" in reported.stderr


@pytest.mark.parametrize("command", ["login", "logout"])
def test_an_organisation_s_profile_needs_no_login(desk: Desk, command: str) -> None:
    """It has a key; the field that makes a profile a person's is named."""
    person = desk.profile.read_text()
    desk.profile.write_text(person.replace('client_id = "epsilon"', f'actor = "{BANK_A}"\nkey = "bank.pem"'))
    reported = desk.run(command, str(desk.profile))
    assert reported.exit_code == 2
    assert "client.client_id: is missing" in reported.stderr


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('key = "bank.pem"', "client.key"),
        (f'actor = "{BANK_A}"', "client.actor"),
        ('scope = "profile"', "client.scope"),
        ("scope = true", "client.scope"),
        ('organisation = "one"', "client.organisation"),
    ],
)
def test_a_person_s_profile_is_read_strictly(desk: Desk, line: str, field: str) -> None:
    """It is a person's or an organisation's, and nothing in between."""
    desk.profile.write_text(f"{desk.profile.read_text()}\n{line}\n")
    with pytest.raises(Malformed) as caught:
        Profile.load(desk.profile)
    assert caught.value.field == field


@pytest.mark.parametrize("url", ["http://ledger.example", "http://127.0.0.1.example", "ledger.example"])
def test_a_person_s_token_goes_nowhere_without_tls(desk: Desk, quiet: ServedWorld, url: str) -> None:
    """But on this machine; the field is named."""
    desk.profile.write_text(desk.profile.read_text().replace(quiet.url, url))
    with pytest.raises(Malformed) as caught:
        Profile.load(desk.profile)
    assert caught.value.field == "client.service"


def test_the_example_of_a_person_s_profile_is_one() -> None:
    """For an auditor of the example's service: any issuer's public client, and no scope but the least."""
    person = Profile.load(ROOT / "docs" / "example" / "auditor.toml").person()
    assert (person.client_id, person.scope) == ("epsilon", None)
    # The command of docs/guides/auditor.md is the one that the tests here run, with this profile.
    assert commands(ROOT / "docs" / "guides" / "auditor.md", HERE) == [("epsilon login auditor.toml", 0)]


def test_a_port_that_is_taken_is_reported(desk: Desk) -> None:
    """One sentence; nobody else's answer is waited for there."""
    taken = urlsplit(desk.issuer).port
    reported = desk.run("login", str(desk.profile), "--no-browser", "--port", str(taken))
    assert reported.exit_code == 2
    assert "in use" in reported.stderr


def _changing(path: str, **changes: str | None) -> Callable[[str], str]:
    """A detour that changes the query of one address."""
    return lambda url: with_query(url, **changes) if urlsplit(url).path == path else url


def _unopened(_url: str) -> None:
    """A browser that never comes back."""


def _epsilon(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "epsilon_ledger", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
