"""`epsilon up`: what it makes, what it refuses, what it prints, and that an interrupted start is completed."""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.up import next_commands, run_development
from api.setup import development_folder as development
from api.setup import development_server
from api.setup.development_folder import PARTIES, DevelopmentFolder, FolderTaken
from api.setup.development_server import kept_outside, run_server
from api.setup.key_files import verifier_key
from client.keys.signer import load_private
from client.profile.profile import Profile
from epsilon_ledger.__main__ import assemble
from ledger.book.checkpoint_file import default_path
from ledger.book.submitted_command import BookUnusable
from ledger.book.wall_clock import ClockWatch, boottime_ms
from ledger.domain.outcomes import Code
from ledger.log.checkpoint import LogSigner
from tests.factories.people import DAY_MS

EPSILON = str(Path(sys.executable).with_name("epsilon"))
PLACE = "my ledger's folder"


@dataclass(frozen=True)
class Up:
    """A started `epsilon up`, and what it printed until it served."""

    process: subprocess.Popen[str]
    place: Path
    state: Path
    lines: list[str]

    @property
    def folder(self) -> Path:
        """Where it runs."""
        return self.place / PLACE


def _started(place: Path, *options: str) -> Up:
    process = subprocess.Popen(
        [EPSILON, "up", PLACE, *options], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.endswith("until interrupted.\n"):
            return Up(process, place, Path(os.environ["XDG_STATE_HOME"]), lines)
    process.communicate()
    raise AssertionError("\n".join(lines))


def _stopped(up: Up) -> str:
    up.process.send_signal(signal.SIGINT)
    rest, _ = up.process.communicate()
    return rest


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """It runs while the module's tests do, in a folder whose name has to be quoted; its first start was killed."""
    killed = _started(tmp_path_factory.mktemp("stranger"), "--port", "0", "--issuer-port", "0")
    killed.process.kill()
    killed.process.communicate()
    up = _started(killed.place)
    assert up.lines[-1] == killed.lines[-1]
    yield up
    rest = _stopped(up)
    assert up.process.returncode == 0
    assert "Stopped. To go on: " in rest


def _epsilon(place: Path, *words: str) -> tuple[int, str, str]:
    with chdir(place):
        done = CliRunner().invoke(assemble(words[0]), [*words], env={"COLUMNS": "80"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_killed_one_goes_on(up: Up) -> None:
    """Killed while it served, it started again on its ports, with the same parties; nothing is registered twice."""
    with Profile.load(up.folder / "auditor.toml").open() as service:
        assert service.checkpoint().splitlines()[1] == "5"


def test_the_newest_checkpoint_is_kept_outside_the_folder(up: Up) -> None:
    """In the state folder of the user, by the log's key: a copy of the folder does not hold it."""
    log = verifier_key(up.folder / "keys" / "log.pem", Profile.load(up.folder / "sro.toml").log.origin)
    assert (up.state / "epsilon-ledger" / "kept-checkpoints" / default_path(log).name).exists()
    assert not (up.folder / "kept").exists()
    assert "kept" not in (up.folder / "profile.toml").read_text(encoding="utf-8")


def test_what_an_earlier_version_kept_in_the_folder_moves_out(tmp_path: Path) -> None:
    """Its profile names it no more; and a copy of the folder that comes back brings no older one."""
    development.claim(tmp_path / "folder", 1, 2)
    mark = development.read_mark(tmp_path / "folder")
    assert mark is not None
    folder = DevelopmentFolder(tmp_path / "folder", mark)
    development.complete(folder)
    signer = LogSigner(load_private(folder.key("log")), folder.mark.origin)
    inside, outside = folder.path / "kept" / "checkpoint", default_path(signer.key)
    inside.parent.mkdir()
    now = folder.profile.read_text(encoding="utf-8")
    before = now.replace("[serve]\n", '[serve]\nkept = "kept/checkpoint"\n')
    assert before != now
    for size in (3, 0):
        inside.write_text(signer.sign(size, bytes(32)), encoding="utf-8")
        folder.profile.write_text(before, encoding="utf-8")
        assert kept_outside(folder, signer.key) == outside
        assert folder.profile.read_text(encoding="utf-8") == now
        assert not inside.exists()
    with (
        pytest.raises(BookUnusable, match=f"fewer than the 3 under the checkpoint kept at {outside}"),
        socket.create_server((development.HOST, 0)) as service,
        socket.create_server((development.HOST, 0)) as issuer,
        run_server(folder, service, issuer),
    ):
        pass
    assert outside.read_text(encoding="utf-8") == signer.sign(3, bytes(32))


@contextmanager
def _served(place: Path) -> Iterator[DevelopmentFolder]:
    """A new folder, complete, served in this process."""
    with (
        socket.create_server((development.HOST, 0)) as service,
        socket.create_server((development.HOST, 0)) as issuer,
    ):
        development.claim(place, service.getsockname()[1], issuer.getsockname()[1])
        mark = development.read_mark(place)
        assert mark is not None
        folder = DevelopmentFolder(place, mark)
        development.complete(folder)
        with run_server(folder, service, issuer):
            yield folder


def test_a_folder_whose_log_key_was_replaced_goes_on_with_the_key_that_its_profile_names(tmp_path: Path) -> None:
    """As a person does it: the key replaced by the command, the new file named in the profile, and started again."""
    with _served(tmp_path / "folder") as folder:
        development_server.register_parties(folder)
    mark = folder.mark
    for words in (["key", "new"], ["rotate-log-key", str(folder.profile)]):
        done = CliRunner().invoke(assemble(), [*words, str(folder.key("log-2"))])
        assert done.exit_code == 0, done.output
    stated = folder.profile.read_text(encoding="utf-8")
    folder.profile.write_text(stated.replace("keys/log.pem", "keys/log-2.pem"), encoding="utf-8")
    development.complete(folder)
    assert folder.log_key == folder.key("log-2")
    with (
        socket.create_server((development.HOST, mark.port)) as service,
        socket.create_server((development.HOST, mark.issuer_port)) as issuer,
        run_server(folder, service, issuer),
        Profile.load(folder.path / "sro.toml").open() as council,
    ):
        assert council.checkpoint().splitlines()[1] == "6"


def test_a_clock_that_jumps_is_said_and_the_service_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The wall clock is suddenly a day ahead of the time since boot: one line says so, and what is sent is recorded."""
    since_boot = [boottime_ms()]
    monkeypatch.setattr(development_server, "ClockWatch", partial(ClockWatch, boottime=lambda: since_boot[0]))
    with _served(tmp_path / "folder") as folder, caplog.at_level(logging.WARNING, "ledger.book"):
        since_boot[0] -= DAY_MS
        development_server.register_parties(folder)
    said = [one.getMessage() for one in caplog.records if "what the time since boot makes it" in one.getMessage()]
    assert len(said) == 1
    assert "ahead of what the time since boot makes it: a service in development goes on" in said[0]


def test_each_printed_command_works_as_pasted(up: Up) -> None:
    """In their order, from where it was started; in another shell the one that writes a file, the others in here."""
    printed = [line.strip() for line in up.lines if line.startswith(("  /", "  ./"))]
    assert len(printed) == 7
    for line in printed:
        words = shlex.split(line)
        assert words[0] == EPSILON
        if ">" in words:
            subprocess.run(["/bin/sh", "-c", line], cwd=up.place, check=True, capture_output=True)
            continue
        code, out, err = _epsilon(up.place, *words[1:])
        assert code == 0, (line, err)
    assert "did:web:tdp.localhost/example/first" in out


def test_a_line_precedes_each_part_of_the_start(up: Up) -> None:
    """The first one comes before anything is loaded; none of the parts is silent."""
    begun = [line for line in up.lines if re.match("Starting|Making|Registering|Loading", line)]
    assert begun == [
        f"Starting in {PLACE}; Ctrl-C stops it.",
        f"Making what is missing in {PLACE}: keys, profiles, book.",
        "Starting the service and the development issuer.",
        "Registering the parties and publishing the policy.",
        "Loading what prices a run.",
    ]
    assert up.lines[: len(begun)] == begun


def test_what_people_read_fits_80_columns(up: Up) -> None:
    """But for commands, which are lines of shell."""
    assert not [line for line in up.lines if len(line) > 80 and EPSILON not in line]


def test_keys_are_their_owner_s_alone_and_the_folder_too(up: Up) -> None:
    """Every private key has mode 0600, in a folder of mode 0700."""
    keys = sorted((up.folder / "keys").iterdir())
    assert [path.stem for path in keys] == ["attester", "auditor", "issuer", "log", "sro", "tdc", "tdp"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert stat.S_IMODE(up.folder.stat().st_mode) == 0o700


def test_each_profile_reads_without_a_login(up: Up) -> None:
    """A token for each of the four, by its key; the log is the one that its profile names."""
    for party in PARTIES:
        with Profile.load(up.folder / f"{party.slug}.toml").open() as service:
            assert service.log()["vkey"] == (up.folder / "log.vkey").read_text(encoding="ascii").strip()
            assert service.policy("development")["domain"] == "development"


def test_a_second_start_is_one_sentence(up: Up) -> None:
    """It names the folder and what to do; nothing is changed."""
    code, _, err = _epsilon(up.place, "up", PLACE)
    assert code == Code.CONFLICT.exit_code
    assert err == (f"another `epsilon up` runs {PLACE}: use it, stop it with Ctrl-C, or name another folder\n")


def test_it_listens_on_loopback_alone(up: Up) -> None:
    """Both ports are bound to 127.0.0.1, as the kernel lists them."""
    mark = development.read_mark(up.folder)
    assert mark is not None
    table = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    listening = [words[1].split(":") for words in map(str.split, table) if words[3] == "0A"]
    for port in (mark.port, mark.issuer_port):
        assert [address for address, hexed in listening if int(hexed, 16) == port] == ["0100007F"]


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    """Also one with a hidden file only, a file, and a link to nowhere."""
    for name in ("thesis.txt", ".hidden"):
        folder = tmp_path / name.strip(".")
        folder.mkdir()
        (folder / name).write_text("mine", encoding="ascii")
        code, _, err = _epsilon(tmp_path, "up", folder.name)
        assert (code, err) == (5, f"{folder.name} holds what `epsilon up` did not make: name another folder\n")
        assert [path.name for path in folder.iterdir()] == [name]
    (tmp_path / "file").write_text("mine", encoding="ascii")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    for name in ("file", "nowhere"):
        assert _epsilon(tmp_path, "up", name)[0] == 5
    assert not (tmp_path / "nothing").exists()


def test_a_taken_port_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    """Of a new folder it names the option; no folder is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = _epsilon(tmp_path, "up", "new", "--port", str(port))
        assert (code, err) == (
            5,
            f"port {port} is in use: stop what listens there, or choose another one with --port\n",
        )
        assert not (tmp_path / "new").exists()
        development.claim(tmp_path / "made", port, port)
        code, _, err = _epsilon(tmp_path, "up", "made")
        assert (code, err) == (5, f"port {port} is in use: stop what listens there, or name another folder\n")
        code, _, err = _epsilon(tmp_path, "up", "made", "--port", "1")
        assert (code, err) == (
            5,
            f"the profiles in made name port {port}: leave --port out, or name another folder\n",
        )


def test_a_making_interrupted_after_any_file_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt may write one more file before it is interrupted; the last one finds all as the others left it."""
    link, folder = os.link, tmp_path / "folder"
    keys: dict[Path, bytes] = {}
    attempts, left = 0, 1

    def interrupted_link(source: Path, target: Path) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        link(source, target)

    with ExitStack() as stack, monkeypatch.context() as patched:
        patched.setattr(os, "link", interrupted_link)
        while True:
            attempts, left = attempts + 1, 1
            try:
                assert development.is_ours_or_free(folder)
                if development.read_mark(folder) is None:
                    development.claim(folder, 1, 2)
                mark = development.read_mark(folder)
                assert mark is not None
                made = DevelopmentFolder(folder, mark)
                development.complete(made)
                break
            except KeyboardInterrupt:
                for path in folder.rglob("*.pem"):
                    assert keys.setdefault(path, path.read_bytes()) == path.read_bytes()
        stack.enter_context(development.hold_folder(folder))
    assert attempts > len(PARTIES) + 3
    assert {path: path.read_bytes() for path in folder.rglob("*.pem")}.items() >= keys.items()
    assert Profile.load(made.profile_of(PARTIES[0])).log.origin == mark.origin
    assert not [*folder.rglob("*.part")]


def test_a_mark_of_others_is_refused(tmp_path: Path) -> None:
    """What is not as it writes it is not taken over."""
    (tmp_path / development.MARK).write_text("{}", encoding="ascii")
    with pytest.raises(FolderTaken, match=r"is not as `epsilon up` writes it"):
        run_development(tmp_path, None, None, print)


def test_commands_are_quoted_for_the_shell() -> None:
    """A folder's name is one word, whatever it holds."""
    for line in next_commands(Path("a b'c$(d)")):
        words = shlex.split(line)
        assert all(re.match(r"a b'c\$\(d\)/", word) for word in words if "$" in word)
        assert sum("$" in word for word in words) >= 1
