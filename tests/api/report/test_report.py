"""``epsilon report``: each number on the page is what the entries make, and what is changed afterwards is found."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from typer.testing import CliRunner, Result

import ledger.verifier
from api.cli.report import app
from api.report import check_page
from api.report.check import Report, Wrong
from api.report.check_page import Changed, Page
from ledger.cli.main import app as ledger_app
from ledger.domain.exit_codes import ExitCode
from ledger.domain.facts import GLOBAL
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from tests.api.console.test_pages import FORBIDDEN
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_B, HOSPITAL, LOG, private_key
from tests.factories.statements import state_now
from tests.factories.stored import open_world
from tests.ledger.audit.forge import tampered
from tests.ledger.log import memory_log

SUBJECT: Final = f"{HOSPITAL}/digits"


class Reported(NamedTuple):
    """A closed book of a log with a key beside it, its size when it last stated its state, and a report of all."""

    book: Path
    stated: int
    folder: Path


def _run(book: Path, *words: str | Path) -> Result:
    found = CliRunner().invoke(app, [str(book), *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Runs that are posted, voided and pending, of two banks, before and after a statement of state."""
    folder = tmp_path_factory.mktemp("report")
    with open_world(folder) as world:
        later = world.clock.now + 3 * 86_400_000
        world.submit(world.charge("one"), world.charge("two", BANK_B, deadline=later), world.charge("given-up"))
        world.submit(world.settle("one", 40))
        state_now(world.book)
        stated = world.size
        world.clock.now += 86_400_000
        world.submit(world.void("given-up"), world.charge("three"))
        world.submit(world.settle("two", 7, BANK_B))
    (folder / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
    into = folder / "evidence"
    done = _run(world.path, "--dataset", SUBJECT, "--into", into)
    assert done.exit_code == 0, done.output
    return Reported(world.path, stated, into)


def _page(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


def _check(folder: Path, log: Path) -> str:
    return Report(folder, log, ledger.verifier, check_page, quiet=True).check()


def test_a_sum_beyond_what_canonical_json_holds_is_reported(tmp_path: Path) -> None:
    """At an order that decides nothing; the report checks itself."""
    far = plan(100, "0.3", "0.000000001")
    with open_world(tmp_path) as world:
        assert world.submit(*(world.charge(f"far-{number}", BANK_B, far) for number in range(60)))[-1].index
        state_now(world.book)
        with world.read() as facts:
            most = max(facts.accounts[PARTITION, GLOBAL].pending.finite)
    assert most > c.INTEGER_MAX
    (tmp_path / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
    done = _run(world.path, "--dataset", SUBJECT, "--into", tmp_path / "evidence")
    assert done.exit_code == 0, done.output
    assert str(most) in _page(tmp_path / "evidence")
    assert _check(tmp_path / "evidence", tmp_path / "log.vkey").startswith("holds: ")


def test_what_to_run_next_can_be_pasted_whatever_the_folder_is_called(reported: Reported) -> None:
    """A shell reads the folder's name as one word."""
    odd = reported.folder.parent / "t w%o?#\nx"
    done = _run(reported.book, "--dataset", SUBJECT, "--into", odd)
    command = done.output.partition("`")[2].rpartition("`")[0]
    assert shlex.split(command)[:2] == ["python", f"{odd}/check.py"]


def test_a_shortage_on_this_machine_says_nothing_of_the_book(reported: Reported) -> None:
    """A limit on the size of files, under which SQLite cannot make its index of the log beside the book."""
    words = [sys.executable, "-c", _SHORT, str(reported.book), "--dataset", SUBJECT, "--into", "unused"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.RETRY, done.stderr
    assert "cannot be read here: disk I/O error: look at the disk's space and at the limits" in done.stderr


def test_the_folder_checks_itself_with_python_and_cryptography_alone(reported: Reported) -> None:
    """Run where nothing of this project can be imported; each file is named with the command that checks it."""
    words = [sys.executable, "-I", "-c", _ALONE, str(reported.folder), "--log", str(reported.book.parent / "log.vkey")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"entries/{_index_of(reported.book, 'one')}.entry id: one\n" in done.stdout
    checked = set(re.findall(r"^python verifier\.py (.+): holds$", done.stdout, re.MULTILINE))
    entries = {one.stem for one in reported.folder.glob("entries/*.entry")}
    expected = {f"receipt entries/{one}.tlog-proof entries/{one}.entry" for one in entries}
    expected |= {f"account accounts/{one.name}" for one in reported.folder.glob("accounts/*")}
    assert checked == {*expected, "checkpoint checkpoint"}
    # Everyone's account and each bank's, of the one partition that was charged.
    assert len([one for one in checked if one.startswith("account")]) == 3


_SHORT: Final = """
import resource, signal, sys
from api.cli.report import app
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_480, 20_480))
app(sys.argv[1:])
"""
_ALONE: Final = """
import runpy, sys
folder = sys.argv[1]
sys.argv[:] = [folder + "/check.py", *sys.argv[2:]]
sys.path.insert(0, folder)
for name in ("ledger", "api"):
    sys.modules[name] = None
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_numbers_are_those_of_another_command(reported: Reported) -> None:
    """The ε and the losses of every account, and the states of all runs, as ``epsilon standing`` computes them."""
    done = CliRunner().invoke(ledger_app, ["standing", str(reported.book), "--json"])
    known = json.loads(done.stdout)
    page = Page(_page(reported.folder))
    units = [json.loads(value) for path, value, _ in page.found if path[0].startswith("accounts/")]
    expected = [
        [[*map(int, one[part]["finite"])], one[part]["infinite"]]
        for one in known["accounts"]
        for part in ("posted", "pending")
    ]
    assert sorted(units) == sorted(expected)
    shown = re.findall(
        r'<td class="of-number">\s*<data value="([\d.]+)"[^>]*>[\d.]+</data></td>(?=\s*<td)', _page(reported.folder)
    )
    assert {one["odometer"].rstrip("0").rstrip(".") for one in known["accounts"]} <= set(shown)
    steps = {(path[-1], value) for path, value, _ in page.found if path[-1] == "steps"}
    assert {("steps", "40"), ("steps", "7"), ("steps", "100")} <= steps
    assert "given-up" not in _page(reported.folder)


def _edited(page: Path, old: str, new: str) -> None:
    text = page.read_text("utf-8")
    assert old in text
    page.write_text(text.replace(old, new, 1), "utf-8")


def _taken(folder: Path, *endings: str) -> None:
    """Put one entry in the place of another."""
    one, other, *_ = sorted(folder.glob("entries/*.entry"))
    for ending in endings:
        one.with_suffix(f".{ending}").write_bytes(other.with_suffix(f".{ending}").read_bytes())


FORGERIES: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "shown": (lambda at: _edited(at / "report.html", ">40</data>", ">30</data>"), "is not what"),
    "value": (
        lambda at: _edited(at / "report.html", '<data value="40"', '<data value="30"'),
        "is not what",
    ),
    "entry": (lambda at: _taken(at, "entry"), "receipt"),
    "other entry": (lambda at: _taken(at, "entry", "tlog-proof"), "not what its name says"),
    "document": (lambda at: next(at.glob("documents/*")).write_bytes(b"{}"), "not a document that an entry"),
    "account": (lambda at: _edited(next(at.glob("accounts/*-global.json")), '"salt":"', '"salt":"A'), "accounts/"),
    "other account": (
        lambda at: shutil.copy(next(at.glob("accounts/*-lineage-*.json")), next(at.glob("accounts/*-global.json"))),
        "not what its name says",
    ),
    "hidden entries": (
        lambda at: _edited(next(at.glob("accounts/*-global.json")), '"hidden":0', '"hidden":1'),
        "lacks 1 entries that may have changed it",
    ),
    "checkpoint": (lambda at: _edited(at / "checkpoint", "\n", "\n1"), "checkpoint"),
    "a proven number is hidden": (lambda at: _shown_as(at, _STEPS, "hidden "), "has what no report has"),
    "it is without size": (lambda at: _shown_as(at, _STEPS, 'style="font-size:0" '), "has what no report has"),
    "it is in a drawing": (lambda at: _shown_as(at, _STEPS, around="svg"), "has what no report has"),
    "it is in a title": (lambda at: _shown_as(at, _STEPS, around="title"), "has what no report has"),
    "another is in it": (lambda at: _edited(at / "report.html", ">40</data>", "><bdi>3</bdi>40</data>"), "no report"),
    "its exact number is another": (lambda at: _shown_as(at, _STEPS, 'title="30" '), "has what no report has"),
    "it is a comment": (lambda at: _edited(at / "report.html", "<h1>", "<!-- <h1>"), "has what no report has"),
    "digits of another script": (
        lambda at: _edited(at / "report.html", ">40</data>", ">\u0664\u0660</data>"),
        "is not",
    ),
    "a script": (lambda at: _edited(at / "report.html", "</main>", "<script>0</script></main>"), "no report has"),
    "another style": (lambda at: _edited(at / "report.html", "</style>", "data{display:none}</style>"), "has a style"),
    "a second style": (lambda at: _edited(at / "report.html", "</main>", "<style>u{}</style></main>"), "has a style"),
    "another page": (lambda at: _edited(at / "report.html", "<!doctype html>", "<!doctype xml>"), "is no page"),
    "a link elsewhere": (lambda at: _edited(at / "report.html", 'href="checkpoint"', 'href="//a"'), "no report has"),
    "a cell of a table": (lambda at: _edited(at / "tables" / "partitions.csv", '"open"', '"1"'), "not what"),
    "whose an account is": (
        lambda at: _edited(next(at.glob("tables/*-accounts.csv")), "lineage:2", "lineage:9"),
        "not",
    ),
    "a row of a table": (lambda at: _edited(next(at.glob("tables/*-runs.csv")), '"one"', '"two"'), "not what"),
    "a table more": (lambda at: (at / "tables" / "summary.csv").write_text("epsilon\n0"), "tables: are "),
    "a table less": (lambda at: (at / "tables" / "odds.csv").unlink(), "tables: are "),
}
_STEPS: Final = '<data value="40"'


def _shown_as(folder: Path, number: str, attribute: str = "", around: str = "") -> None:
    """A number that is proven, and not seen; beside it one that is seen, and underlined."""
    page = folder / "report.html"
    text = page.read_text("utf-8")
    start = text.index(number)
    end = text.index("</data>", start) + len("</data>")
    hidden = text[start:end].replace("<data ", f"<data {attribute}", 1)
    hidden = f"<{around}>{hidden}</{around}>" if around else hidden
    page.write_text(f'{text[:start]}{hidden}<data value="30">30</data>{text[end:]}', "utf-8")


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_changed_is_found(reported: Reported, tmp_path: Path, name: str) -> None:
    """A number on the page, an entry, a document, a proof: the check names it."""
    change, words = FORGERIES[name]
    copied = tmp_path / "copy"
    shutil.copytree(reported.folder, copied)
    log = reported.book.parent / "log.vkey"
    assert _check(copied, log).startswith("holds: ")
    change(copied)
    with pytest.raises((Wrong, Changed), match=words):
        _check(copied, log)


def test_it_is_checked_by_ones_own_copies(reported: Reported, tmp_path: Path) -> None:
    """Those beside the page are of who gives the report, and say whatever they like."""
    own, copied = tmp_path / "own", tmp_path / "copy"
    own.mkdir()
    shutil.copytree(reported.folder, copied)
    for name, source in (("check", "api.report"), ("check_page", "api.report"), ("verifier", "ledger")):
        (own / f"{name}.py").write_bytes((files(source) / f"{name}.py").read_bytes())
        (copied / f"{name}.py").write_text("print('holds: all')\nraise SystemExit(0)\n")
    words = [sys.executable, "-s", str(own / "check.py"), str(copied), "--log", str(reported.book.parent / "log.vkey")]
    said = []
    for shown in ("40", "30"):
        _edited(copied / "report.html", ">40</data>", f">{shown}</data>")
        done = subprocess.run([*words, "--quiet"], capture_output=True, text=True, check=False, cwd=copied)
        said.append((done.returncode, done.stdout[:6], done.stderr.partition(" is not")[0]))
    assert said == [(0, "holds:", ""), (7, "", "report.html: '30' (40)")]


@pytest.mark.parametrize("entry", [b"[]", b'{"body":{"request":[]}}', b"[" * 9_000 + b"]" * 9_000])
def test_entries_that_are_none_make_no_report(tmp_path: Path, entry: bytes) -> None:
    """They are genuine entries of their log, whose operator forges the report: that is found, and not a crash."""
    log = memory_log.Log([entry])
    (tmp_path / "entries").mkdir()
    (tmp_path / "log.vkey").write_text(memory_log.KEY.vkey)
    (tmp_path / "checkpoint").write_text(log.note(1))
    (tmp_path / "entries" / "0.entry").write_bytes(entry)
    (tmp_path / "entries" / "0.tlog-proof").write_text(log.receipt(0, 1))
    for name, source in (("check", "api.report"), ("check_page", "api.report"), ("verifier", "ledger")):
        (tmp_path / f"{name}.py").write_bytes((files(source) / f"{name}.py").read_bytes())
    words = [sys.executable, "-s", str(tmp_path / "check.py"), "--log", str(tmp_path / "log.vkey"), "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (7, "", 1), done.stderr


@pytest.mark.parametrize(("account", "lie_here"), [("global", 2), ("lineage-2", 1), ("lineage-3", 1)])
def test_an_account_of_an_earlier_day_is_none_of_the_report(
    reported: Reported, tmp_path: Path, account: str, lie_here: int
) -> None:
    """Its proof is sound by itself, under the same checkpoint, and leaves out what came since."""
    copied, earlier = tmp_path / "copy", tmp_path / "earlier"
    shutil.copytree(reported.folder, copied)
    done = _run(reported.book, "--dataset", SUBJECT, "--as-of", str(reported.stated), "--into", earlier)
    assert done.exit_code == 0, done.output
    (proof,) = earlier.glob(f"accounts/*-{account}.json")
    shutil.copy(proof, copied / "accounts")
    with pytest.raises(Wrong, match=f"shows 0 entries since its statement, and {lie_here} lie here"):
        _check(copied, reported.book.parent / "log.vkey")


def test_a_charge_over_a_range_is_one_of_an_accounts_entries(tmp_path: Path) -> None:
    """It lists no partition: that one is in its range the openings show."""
    name = PARTITION.rpartition("/")[2]
    with open_world(tmp_path) as world:
        world.submit(world.charge("one"), world.settle("one", 40))
        state_now(world.book)
        stated = world.size
        world.submit(world.charge("two", partitions=(), ranges=[{"dataset": SUBJECT, "first": name, "last": name}]))
        world.submit(world.settle("two", 60))
    log, whole, earlier = (tmp_path / name for name in ("log.vkey", "whole", "earlier"))
    log.write_text(f"{LOG.vkey}\n", encoding="ascii")
    for folder, words in ((whole, ()), (earlier, ("--as-of", str(stated)))):
        assert _run(world.path, "--dataset", SUBJECT, *words, "--into", folder).exit_code == 0
        assert _check(folder, log).startswith("holds: ")
    for proof in earlier.glob("accounts/*.json"):
        copied = tmp_path / proof.stem
        shutil.copytree(whole, copied)
        shutil.copy(proof, copied / "accounts")
        with pytest.raises(Wrong, match="shows 0 entries since its statement, and 2 lie here"):
            _check(copied, log)
    assert len([*earlier.glob("accounts/*.json")]) == 2


def test_an_account_under_another_checkpoint_is_none_of_the_report(reported: Reported, tmp_path: Path) -> None:
    """The log's key has signed it, as that of a book that went another way would have."""
    copied = tmp_path / "copy"
    shutil.copytree(reported.folder, copied)
    with open_world(tmp_path) as world:
        world.submit(world.charge("one"))
        state_now(world.book)
    (tmp_path / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
    done = _run(world.path, "--dataset", SUBJECT, "--into", tmp_path / "other")
    assert done.exit_code == 0, done.output
    (proof,) = (tmp_path / "other").glob("accounts/*-global.json")
    shutil.copy(proof, copied / "accounts")
    with pytest.raises(Wrong, match="not under the checkpoint of the report"):
        _check(copied, tmp_path / "log.vkey")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {str(value) for name, value in attrs if name in {"href", "src", "action"}}


def test_the_page_is_whole_by_itself(reported: Reported) -> None:
    """No script, nothing from another place; each link leads to a file of the folder; nothing that is never shown."""
    found = _Links()
    found.feed(_page(reported.folder))
    assert not found.tags & {"script", "img", "iframe", "form", "object"}
    for link in found.links - {"data:,"}:
        assert (reported.folder / link).is_file(), link
    text = re.sub(r"<style>.*?</style>", "", _page(reported.folder), flags=re.DOTALL)
    assert [one for one in FORBIDDEN if one in text.lower()] == []
    assert "https://" not in text
    for table in reported.folder.glob("tables/*.csv"):
        assert [one for one in FORBIDDEN if one in table.read_text("utf-8").lower()] == []


def test_a_report_of_the_same_entries_has_the_same_bytes(reported: Reported, tmp_path: Path) -> None:
    """Whoever has the book makes every number again, those that name no file included."""
    assert _run(reported.book, "--dataset", SUBJECT, "--into", tmp_path / "again").exit_code == 0
    first, again = _files(reported.folder), _files(tmp_path / "again")
    assert first == again
    assert "report.html" in first


def _files(folder: Path) -> dict[str, bytes]:
    """What the command wrote, without what Python leaves beside a module that it ran."""
    found = (one for one in folder.rglob("*") if one.is_file() and one.suffix != ".pyc")
    return {str(one.relative_to(folder)): one.read_bytes() for one in found}


def _last_time(book: Path, size: int) -> int:
    done = CliRunner().invoke(ledger_app, ["log", str(book), "--json"])
    times: list[Any] = [json.loads(line)["time"] for line in done.stdout.splitlines()]
    return int(times[size - 1])


def test_a_day_and_a_moment_take_in_the_entries_until_then(reported: Reported, tmp_path: Path) -> None:
    """By size, by the moment of the last entry, and by its day: before the second day's entries, each proven."""
    last = _last_time(reported.book, reported.stated)
    moment = datetime.fromtimestamp(last / 1000, UTC)
    for place, point in enumerate((str(reported.stated), moment.isoformat(), moment.strftime("%Y-%m-%d"))):
        into = tmp_path / str(place)
        done = _run(reported.book, "--dataset", SUBJECT, "--as-of", point, "--into", into, "--json")
        assert json.loads(done.stdout)["entries"] == reported.stated
        assert _check(into, reported.book.parent / "log.vkey").startswith("holds: ")
        assert "three" not in _page(into)


def test_entries_in_the_middle_of_a_batch_are_proven_under_the_checkpoint_after_it(
    reported: Reported, tmp_path: Path
) -> None:
    """No checkpoint ends there; and before the first statement no account has a proof of its own."""
    size = _index_of(reported.book, "one") + 1
    into = tmp_path / "middle"
    assert _run(reported.book, "--dataset", SUBJECT, "--as-of", str(size), "--into", into).exit_code == 0
    assert " 0 accounts, all under the checkpoint of " in _check(into, reported.book.parent / "log.vkey")
    assert "states no state among these entries" in _page(into)


def _index_of(book: Path, name: str) -> int:
    lines = CliRunner().invoke(ledger_app, ["log", str(book), "--json"]).stdout.splitlines()
    return next(index for index, line in enumerate(lines) if json.loads(line)["id"] == name)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--dataset", f"{HOSPITAL}/none"), 4, "register no dataset"),
        (("--dataset", "digits"), 2, "must be provider/dataset"),
        (("--dataset", SUBJECT, "--as-of", "1999-12-31"), 4, "has no entry before"),
        (("--dataset", SUBJECT, "--as-of", "2026-13-01"), 2, "must be a day"),
        (("--dataset", SUBJECT, "--as-of", "2026-11-23T12:00:00"), 2, "must be a day"),
        (("--dataset", SUBJECT, "--as-of", "9999"), 4, "fewer than 9999"),
        (("--dataset", SUBJECT, "--as-of", "0"), 4, "no entry yet"),
        (("--dataset", SUBJECT, "--as-of", "3"), 4, "register no dataset"),
    ],
)
def test_what_cannot_be_reported_leaves_nothing(
    reported: Reported, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    """One sentence, an exit code, and no folder."""
    done = _run(reported.book, *words, "--into", tmp_path / "none")
    assert (done.exit_code, said in done.output) == (code, True), done.output
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_is_there_is_kept(reported: Reported, tmp_path: Path) -> None:
    """An empty one too."""
    (tmp_path / "there").mkdir()
    done = _run(reported.book, "--dataset", SUBJECT, "--into", tmp_path / "there")
    assert (done.exit_code, "is there already" in done.output) == (2, True)
    assert [*(tmp_path / "there").iterdir()] == []


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("UPDATE entry SET data = CAST(replace(data, 'digits', 'digitz') AS BLOB) WHERE kind = 'partition'", ""),
        ("UPDATE entry SET data = CAST(replace(data, ':40}', ':10}') AS BLOB) WHERE kind = 'post'", "of the state"),
        ("UPDATE entry SET data = CAST(replace(data, ':7}', ':1}') AS BLOB) WHERE kind = 'post'", "signed other"),
        ("UPDATE tree_node SET hash = zeroblob(32) WHERE level = 0 AND position = 3", "do not prove it"),
    ],
)
def test_a_forged_book_makes_no_report(reported: Reported, tmp_path: Path, script: str, said: str) -> None:
    """An entry or a hash was changed below the program."""
    book = tampered(reported.book, tmp_path / "forged.sqlite", script)
    done = _run(book, "--dataset", SUBJECT, "--log", reported.book.parent / "log.vkey", "--into", tmp_path / "none")
    assert (done.exit_code, said in done.output) == (7, True), done.output
    assert not (tmp_path / "none").exists()


def test_another_logs_key_proves_nothing(reported: Reported, tmp_path: Path) -> None:
    """Of a key that never signed this log no report is made."""
    other = LogKey(LOG.origin, private_key("another").public_key().public_bytes_raw())
    (tmp_path / "other.vkey").write_text(f"{other.vkey}\n", encoding="ascii")
    done = _run(reported.book, "--dataset", SUBJECT, "--log", tmp_path / "other.vkey", "--into", tmp_path / "none")
    assert (done.exit_code, "signed other entries" in done.output) == (7, True), done.output
    assert not (tmp_path / "none").exists()
