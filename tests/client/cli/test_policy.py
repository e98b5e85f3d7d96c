"""Publishing a policy: what it would change is shown first, and what changes what stands is not published unasked."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.book.wall_clock import unix_ms
from tests.factories.parties_walk import Desk, walked
from tests.factories.people import HOSPITAL

REF = f"{HOSPITAL}/scans/2026-q4"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk of these tests' own, since policies bind everybody."""
    with walked(tmp_path_factory.mktemp("publishing")) as (desk, _):
        yield desk


def _next(desk: Desk, version: int, epsilon: str) -> str:
    """A file with a policy's next version, under which a run may have so much."""
    text = (desk.folder / "policy.yaml").read_text()
    name = f"policy-{version}.yaml"
    first = ("version: 1\n", 'run: {epsilon_max: "4"}')
    for one, other in zip(first, (f"version: {version}\n", f'run: {{epsilon_max: "{epsilon}"}}'), strict=True):
        assert text.count(one) == 1
        text = text.replace(one, other)
    (desk.folder / name).write_text(text)
    return name


def _standing(desk: Desk) -> int:
    """Which version stands."""
    shown = desk.run("epsilon policy show bank-a.toml health --json")
    return int(json.loads(shown.out)["versions"][-1]["version"])


def test_a_dry_run_shows_and_publishes_nothing(own: Desk) -> None:
    """A table for people and the whole for programs, on stdout."""
    size, name = own.world.size, _next(own, _standing(own) + 1, "3.9")
    reported = own.run(f"epsilon policy publish sro.toml {name} --dry-run")
    assert (reported.code, reported.err) == (0, "")
    assert all(word in reported.out for word in (REF, "run_epsilon_max 3.9", "1 partitions change"))
    assert len(set(re.findall(r"run_epsilon_max [0-9.]+", reported.out))) == 2
    impact = json.loads(own.run(f"epsilon policy publish sro.toml {name} --dry-run --json").out)
    assert [one["name"] for one in impact["partitions"]] == [REF]
    assert (impact["refused"], own.world.size) == ([], size)


def test_where_nobody_can_be_asked_what_changes_needs_a_yes(own: Desk) -> None:
    """Without it nothing is recorded; with it the policy is, and programs get the impact beside the answer."""
    standing = _standing(own)
    size, name = own.world.size, _next(own, standing + 1, "3.8")
    refused = own.run(f"epsilon policy publish sro.toml {name}")
    assert (refused.code, refused.out, own.world.size) == (2, "", size)
    assert REF in refused.err
    assert "--yes" in refused.err
    done = json.loads(own.run(f"epsilon policy publish sro.toml {name} --yes --json").out)
    assert (done["outcome"], done["index"]) == ("permitted", size)
    assert [one["name"] for one in done["impact"]["partitions"]] == [REF]
    assert _standing(own) == standing + 1


def test_what_is_shown_to_be_refused_is_not_sent(own: Desk) -> None:
    """A version that skips one: the reasons are told, nothing is recorded, with --yes neither; a dry run ends alike."""
    size, name = own.world.size, _next(own, _standing(own) + 2, "3.9")
    for more in ("--yes", "--yes --json", "--dry-run"):
        refused = own.run(f"epsilon policy publish sro.toml {name} {more}")
        assert (refused.code, own.world.size) == (3, size), more
        assert "version_not_next" in refused.err
    assert "Nothing was recorded" in refused.err


def test_a_dead_policy_is_shown_and_warned_of(own: Desk) -> None:
    """No order is open under its lineage cap: a row of the preview, and a warning beside the answer."""
    standing = _standing(own)
    name = _next(own, standing + 1, "3.9")
    text = (own.folder / name).read_text()
    dead = re.sub(r'lineage: \{epsilon_max: "[0-9.]+"\}', 'lineage: {epsilon_max: "0.001"}', text)
    assert dead != text
    (own.folder / "dead.yaml").write_text(dead)
    reported = own.run("epsilon policy publish sro.toml dead.yaml --dry-run")
    assert (reported.code, "nothing runs" in reported.out) == (0, True)
    impact = json.loads(own.run("epsilon policy publish sro.toml dead.yaml --dry-run --json").out)
    assert [(one["usable"], one["partition"]) for one in impact["caps"]] == [(False, REF)]


def test_a_contract_is_checked_before_it_is_signed(own: Desk) -> None:
    """Of each cap what could run under it; a document without caps is refused by name."""
    reported = own.run("epsilon contract check hospital.toml contract.yaml")
    assert (reported.code, REF in reported.out) == (0, True), reported.err
    (one,) = json.loads(own.run("epsilon contract check bank-a.toml contract.yaml --json").out)
    assert (one["partition"], one["usable"]) == (REF, True)
    dead = (own.folder / "contract.yaml").read_text() + 'lineage: {epsilon_max: "0.001"}\n'
    (own.folder / "dead-contract.yaml").write_text(dead)
    reported = own.run("epsilon contract check bank-a.toml dead-contract.yaml")
    assert "can ever be admitted" in reported.out
    loud, quiet = (own.run(f"epsilon contract sign bank-a.toml dead-contract.yaml{one}") for one in ("", " --offline"))
    assert (loud.code, quiet.code, loud.out) == (0, 0, quiet.out)
    assert ("Warning: " in loud.err, "can ever be admitted" in loud.err, "Warning" in quiet.err) == (True, True, False)
    assert "Warning" not in own.run("epsilon contract sign bank-a.toml contract.yaml").err
    away = (own.folder / "bank-a.toml").read_text().replace(own.world.url, "http://127.0.0.1:1")
    (own.folder / "away.toml").write_text(away)
    signed = own.run("epsilon contract sign away.toml dead-contract.yaml")
    assert (signed.code, signed.out, "is unknown: " in signed.err) == (0, loud.out, True)
    odd = own.run("epsilon contract check bank-a.toml dataset.yaml")
    assert (odd.code, "kind" in odd.err) == (2, True)


def test_a_merger_shows_its_effect_and_asks(own: Desk) -> None:
    """Accounts that grow need a yes; the earlier name of the option works on, and a dry run asks nothing."""
    size = own.world.size
    line = "epsilon lineage merge sro.toml did:web:bank-a.example did:web:hospital.example"
    refused = own.run(line)
    assert (refused.code, own.world.size) == (2, size)
    assert "--yes: is required without a terminal" in refused.err
    assert "whose account" in refused.err
    for option in ("--only-within-caps", "--proposed"):
        reported = own.run(f"{line} {option} --dry-run")
        assert (reported.code, "would be" in reported.out + reported.err) == (reported.code, True), reported.err
    refused = own.run("epsilon lineage publish sro.toml run-1 --json")
    assert (refused.code, own.world.size) == (2, size)
    reported = own.run("epsilon lineage publish sro.toml run-1 --dry-run")
    assert (reported.code, "whose account" in reported.err, "did:web:hospital.example" in reported.err) == (
        0,
        True,
        True,
    )
    requested = Terminal(own, line.removeprefix("epsilon "))
    requested.asks()
    code, out, err = requested.answer("n")
    assert (code, out, own.world.size) == (2, "", size), err


class Terminal:
    """One command at a terminal, answered as it asks."""

    def __init__(self, desk: Desk, line: str) -> None:
        """Start it."""
        desk.world.clock.now = max(desk.world.clock.now, unix_ms() // 1000 * 1000)
        self._keyboard, screen = pty.openpty()
        path = os.pathsep.join([str(Path.cwd()), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "epsilon_ledger", *line.split()],
            stdin=screen,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=desk.folder,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        )
        os.close(screen)

    def asks(self) -> str:
        """What it says until it asks."""
        assert self._process.stderr is not None
        said = b""
        while not said.endswith(b"[y/N] "):
            more = self._process.stderr.read(1)
            assert more, said.decode()
            said += more
        return said.decode()

    def answer(self, word: str) -> tuple[int, str, str]:
        """Exit code, stdout and the rest of stderr."""
        os.write(self._keyboard, f"{word}\n".encode())
        out, err = self._process.communicate(timeout=60)
        os.close(self._keyboard)
        return self._process.returncode, out.decode(), err.decode()


def test_at_a_terminal_somebody_is_asked(own: Desk) -> None:
    """After the table; who says no has published nothing, who says yes has."""
    standing, size = _standing(own), own.world.size
    name = _next(own, standing + 1, "3.7")
    requested = Terminal(own, f"policy publish sro.toml {name}")
    assert "1 partitions change" in requested.asks()
    code, out, err = requested.answer("n")
    assert (code, out, own.world.size) == (2, "", size)
    assert "not published" in err
    again = Terminal(own, f"policy publish sro.toml {name}")
    again.asks()
    code, out, err = again.answer("y")
    assert (code, _standing(own)) == (0, standing + 1), err
    assert f"permitted, entry {size}" in out


def test_what_was_shown_is_what_is_replaced(own: Desk) -> None:
    """Another version published while somebody thinks: the yes was not to that, and it is refused as stale."""
    standing = _standing(own)
    name = _next(own, standing + 1, "3.6")
    thinking = Terminal(own, f"policy publish sro.toml {name}")
    thinking.asks()
    assert own.run(f"epsilon policy publish sro.toml {_next(own, standing + 1, '3.5')} --yes").code == 0
    size = own.world.size
    code, _, err = thinking.answer("y")
    assert (code, own.world.size) == (5, size)
    assert err.strip().startswith("stale")


def test_policies_and_lineage_are_shown(own: Desk) -> None:
    """One row a version with its issuer, one row a node with who stands there; another's lineage is not a bank's."""
    shown = own.run("epsilon policy show bank-a.toml health")
    assert (shown.code, "did:web:sro.example" in shown.out) == (0, True)
    graph = own.run("epsilon lineage show sro.toml did:web:bank-a.example")
    assert (graph.code, "organisation" in graph.out, "did:web:bank-a.example" in graph.out) == (0, True, True)
    assert json.loads(own.run("epsilon lineage show bank-a.toml did:web:bank-a.example --json").out)["complete"]
    assert own.run("epsilon lineage show bank-a.toml did:web:sro.example").code == 4
    assert own.run("epsilon policy show bank-a.toml nowhere").code == 4


def test_what_a_command_would_get_is_reported_without_an_entry(own: Desk) -> None:
    """Permitted or refused, for every kind that is signed from a file or from words."""
    size = own.world.size
    for line, code, word in (
        ("charge void bank-a.toml run-1 --dry-run", 0, "would be voided; nothing was recorded"),
        (f"dataset retire hospital.toml {REF} --dry-run", 0, "would be permitted"),
        ("contract enter bank-a.toml contract.yaml --signature hospital.jws --dry-run", 3, "version_not_next"),
        ("charge void hospital.toml run-1 --dry-run", 6, "not_authorised"),
    ):
        ran = own.run(f"epsilon {line}")
        assert (ran.code, word in ran.out + ran.err) == (code, True), (line, ran.out, ran.err)
    assert own.world.size == size


def test_the_shell_completes_ids_of_charges(own: Desk) -> None:
    """As bash asks; a service that is not there completes nothing, and says nothing."""
    text = (own.folder / "bank-a.toml").read_text()
    (own.folder / "gone.toml").write_text(text.replace(own.world.url, "http://127.0.0.1:1"))
    script = 'import sys; sys.argv = ["epsilon"]; from epsilon_ledger.__main__ import main; main()'
    for profile, completed in (("bank-a.toml", ["run-1"]), ("gone.toml", []), ("nothing.toml", [])):
        words = f"epsilon charge show {profile} ru"
        requested = {"COMP_CWORD": "4", "COMP_WORDS": words, "_EPSILON_COMPLETE": "complete_bash"}
        path = os.pathsep.join([str(Path.cwd()), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **requested, "PYTHONPATH": path},
            cwd=own.folder,
        )
        assert (done.stdout.split(), done.stderr) == (completed, "")
