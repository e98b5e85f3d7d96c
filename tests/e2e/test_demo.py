"""The main job from the outside: run once, then its screen and its book are held against independent computations."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from safetensors import safe_open
from typer.testing import CliRunner

from epsilon_ledger.__main__ import assemble
from ledger.commands.entry import Entry
from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, Account, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.ensembles import EnsemblePlan
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.store.engine import engine_of
from ledger.store.snapshot import Snapshot
from tests.ledger.audit.forge import entries_of

OUTSIDE = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
"""The environment of somebody's pipe: a test runner's idea of a screen is not theirs."""
ROOT = Path(__file__).parents[2]
EPSILON = str(Path(sys.executable).with_name("epsilon"))
FOLDER = "my demo"
"""A name that a shell has to be given in quotes."""
NAT = 1 << 40
SEALED = "clinics-answers"
"""The run whose model never leaves."""


@dataclass(frozen=True)
class Told:
    """What one run of the demonstration left: its screen, its folder and its book."""

    screen: str
    folder: Path
    entries: list[Entry]
    charges: dict[str, Charge]
    accounts: dict[tuple[str, str], Account]
    orders: dict[str, tuple[int, ...]]

    def of(self, kind: str, code: str) -> list[Entry]:
        """The entries of a kind with an outcome, in order."""
        return [one for one in self.entries if one.kind == kind and one.code.word == code]

    @property
    def trained(self) -> dict[str, Charge]:
        """The charges of runs whose model leaves."""
        return {name: one for name, one in self.charges.items() if name != SEALED}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """One demonstration, run as a stranger would."""
    place = tmp_path_factory.mktemp("stranger")
    command = [EPSILON, "demo", FOLDER]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=OUTSIDE)
    assert done.returncode == 0, done.stderr[-2000:]
    path = place / FOLDER / "book.sqlite"
    entries = entries_of(path)
    engine = engine_of(f"sqlite:///{path}", writes=False)
    with engine.begin() as connection:
        book = Snapshot(connection)
        charges, accounts = dict(book.charges), dict(book.accounts)
        orders = {ref: tuple(json.loads(one.terms)["orders"]) for ref, one in book.partitions.items()}
    engine.dispose()
    return Told(done.stdout, place / FOLDER, entries, charges, accounts, orders)


def _plan(told: Told, charge: Charge) -> Plan:
    return Plan.of(parse_plan(told.entries[charge.index].request["plan"]))


def test_every_chapter_of_the_story_is_in_the_log(told: Told) -> None:
    """A policy in two versions, three partitions and contracts, runs with keys and models, one refusal, one merger."""
    assert len(told.of("policy", "permitted")) == 2
    assert len(told.of("partition", "permitted")) == 3
    assert len(told.of("contract", "permitted")) == 3
    assert len(told.of("charge", "budget_exhausted")) == 1
    assert len(told.of("merger", "permitted")) == 1
    ran = told.of("charge", "pending")
    assert len(ran) >= 3
    assert ran[-1].id == SEALED
    for kind, code, of in (
        ("key_release", "permitted", ran),
        ("post", "posted", ran),
        ("model_release", "permitted", ran[:-1]),
    ):
        assert [one.request["charge"] for one in told.of(kind, code)] == [one.id for one in of]


def test_a_model_that_never_leaves_answers_and_each_answer_is_in_the_log(told: Told) -> None:
    """Votes of fifty teachers, charged at their price before the key, leased before they left; no model of them."""
    charge, flat = told.charges[SEALED], " ".join(told.screen.split())
    entry = told.entries[charge.index]
    plan = EnsemblePlan.of(parse_plan(entry.request["plan"]))
    assert (charge.state, charge.steps, charge.steps_posted) == (ChargeState.POSTED, plan.questions, plan.questions)
    # 16 Gaussian answers at distance √2: one of the same total, priced by dp_accounting.
    noise = float(plan.answer.noise) / (2 * plan.questions) ** 0.5  # type: ignore[attr-defined] # of votes
    accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(GaussianDpEvent(noise))
    shown = re.search(r"ε (\d+\.\d+) [^ε]*?, for all 16, and paid before", flat)
    assert shown
    assert float(shown.group(1)) == pytest.approx(accountant.get_epsilon(1e-4), abs=0.01)
    right = re.search(r"(\d+) of 16 answers are what the clinic knows", flat)
    assert right
    assert int(right.group(1)) >= 11
    of_run = [one for one in told.entries if one.request.get("charge") == SEALED]
    kinds = [one.kind for one in of_run]
    assert kinds[:2] == ["key_release", "run_generation"]
    assert set(kinds[2:-1]) == {"step_lease"}
    assert kinds[-1] == "post"
    folder = told.folder / "runs" / SEALED
    assert f"of the run there is {', '.join(sorted(one.name for one in folder.iterdir()))}; no model" in flat
    assert not [*folder.glob("*.safetensors")]
    assert b'"class"' not in (folder / "answers.log").read_bytes()


def test_the_refused_run_never_got_a_key(told: Told) -> None:
    """The refusal names the account without room; nothing follows for that charge, and no run left a trace."""
    (refused,) = told.of("charge", "budget_exhausted")
    checks: Any = refused.body["checks"]
    assert {check["source"] for check in checks} >= {GLOBAL}
    assert not [one for one in told.entries if one.request.get("charge") == refused.id]
    assert refused.id not in told.charges
    assert not (told.folder / "runs" / refused.id / "steps.log").exists()


def test_each_epsilon_on_screen_is_what_pld_says_of_the_whole_plan(told: Told) -> None:
    """To four digits, by dp_accounting's own PLDAccountant, however few of the steps ran; and in the model's file."""
    rows = dict(re.findall(r"│ (\S+-run-\d+)\s+│ \S+\s+│\s+\d+ │\s+[\d.]+% │\s+([\d.]+) │", told.screen))
    posted = {name: one for name, one in told.trained.items() if one.state is ChargeState.POSTED}
    assert rows.keys() == posted.keys()
    for name, charge in posted.items():
        plan = _plan(told, charge)
        accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
        gaussian = GaussianDpEvent(float(plan.noise_multiplier))
        step = PoissonSampledDpEvent(float(plan.sampling_probability), gaussian)
        accountant.compose(SelfComposedDpEvent(step, charge.steps))
        assert float(rows[name]) == pytest.approx(accountant.get_epsilon(1e-4), abs=1e-4)
        with safe_open(told.folder / "runs" / name / "model.safetensors", framework="np") as file:
            assert 0 <= float(rows[name]) - float(file.metadata()["epsilon"]) < 1e-4


def test_the_first_run_stopped_early_and_paid_for_what_ran(told: Told) -> None:
    """Fewer steps were posted than charged: those that it had leased, of which its step log says what was begun."""
    first = told.charges[told.of("charge", "pending")[0].id]
    assert first.steps_posted is not None
    assert 0 < first.steps_posted < first.steps
    lines = (told.folder / "runs" / first.id / "steps.log").read_text(encoding="ascii").splitlines()
    assert 0 < json.loads(lines[-1])["last"] <= first.steps_posted
    leased = [one for one in told.of("step_lease", "permitted") if one.request["charge"] == first.id]
    assert leased[-1].request["last"] == first.steps_posted
    back = first.steps - first.steps_posted
    assert f"{first.steps_posted} were leased and are posted, {back} go back to headroom" in " ".join(
        told.screen.split()
    )


def _rho(plan: Plan, order: int) -> mpmath.mpf:
    """Rényi divergence of one step at an integer order (Mironov, Talwar, Zhang 2019, eq. for integer orders)."""
    q = mpmath.mpf(plan.sampling_probability.numerator) / plan.sampling_probability.denominator
    sigma = mpmath.mpf(plan.noise_multiplier.numerator) / plan.noise_multiplier.denominator
    terms = (
        mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp((k * k - k) / (2 * sigma**2))
        for k in range(order + 1)
    )
    return mpmath.log(mpmath.fsum(terms)) / (order - 1)


def test_every_account_is_the_sum_of_its_runs_and_the_documented_slack_at_most_above(told: Told) -> None:
    """Never below an independent 50-digit computation; a step's slack above, as ledger/README.md states it, at most."""
    nodes = {GLOBAL: None}
    merger = told.entries.index(told.of("merger", "permitted")[0])
    nodes[holder_of(merger)] = None  # every bank's runs: both banks are in it
    with mpmath.workdps(50):
        for (ref, holder), account in told.accounts.items():
            runs = [one for one in told.trained.values() if ref in one.partitions]
            if ref in told.charges[SEALED].partitions:
                continue
            if holder not in nodes:
                runs = [one for one in runs if holder_of(one.author) == holder]
            for place, order in enumerate(told.orders[ref]):
                exact = mpmath.mpf(0)
                slack = mpmath.mpf(0)
                for run in runs:
                    rho, steps = _rho(_plan(told, run), order), run.steps_posted or 0
                    exact += rho * steps * NAT
                    slack += steps * (rho * mpmath.mpf("1.001e-9") * NAT + mpmath.mpf("1.3e-12") * NAT + 1)
                assert exact <= account.posted.finite[place] <= exact + slack + 1
            assert not any(account.pending.finite)


def test_the_merged_lineage_is_the_union_of_the_runs(told: Told) -> None:
    """On the first partition, where both banks ran, it is their sum; and the cap that it passes freezes it."""
    (ref,) = {one.partitions[0] for one in told.charges.values() if one.id.endswith("run-1")}
    merger = told.entries.index(told.of("merger", "permitted")[0])
    merged = told.accounts[ref, holder_of(merger)].posted
    runs = [one for one in told.charges.values() if ref in one.partitions]
    parts = [told.accounts[ref, holder].posted for holder in {holder_of(one.author) for one in runs}]
    assert len(parts) == 2
    assert merged == parts[0] + parts[1] == told.accounts[ref, GLOBAL].posted
    assert "would be refused (budget_exhausted)" in re.sub(r"\s+", " ", told.screen)
    assert "on 2026-q4 would be permitted" in re.sub(r"\s+", " ", told.screen)


def test_the_three_commands_work_as_printed(told: Told) -> None:
    """Pasted from the screen, from where the demonstration was started."""
    lines = told.screen.rpartition("To try next:")[2].split("\n")
    commands = [line.strip() for line in lines if line.strip()]
    assert len(commands) == 3
    answers = []
    for command in commands:
        done = subprocess.run(
            shlex.split(command), cwd=told.folder.parent, capture_output=True, text=True, check=False, env=OUTSIDE
        )
        assert done.returncode == 0, (command, done.stderr)
        answers.append(done.stdout)
    assert "budget_exhausted" in answers[0]
    assert "no_room" in answers[1]
    assert json.loads(answers[2])["ok"] is True


def test_a_line_precedes_whatever_takes_long(told: Told) -> None:
    """One before the imports, and one before each process: whoever reads a pipe sees what is waited for."""
    lines = [line.strip() for line in told.screen.splitlines()]
    assert lines[0] == f"Starting the demonstration in {FOLDER}."
    begun = [
        line for line in lines if re.match(r"· (making|calibrating|training|opening|asking|waiting|verifying)\b", line)
    ]
    trains = [line for line in begun if line.startswith("· training, ")]
    assert len(trains) == len(told.of("charge", "pending")) - 1 + len(told.of("charge", "budget_exhausted"))
    address = next(line for line in begun if line.startswith("· asking")).rpartition(" ")[2]
    assert begun == [
        "· making the book",
        "· calibrating the noise with privacy loss distributions",
        *trains,
        "· training 50 teachers and sealing them, in a clean room of its own",
        "· opening them in an attested room that answers",
        f"· asking 16 questions at {address}",
        "· waiting until the room has ended by itself",
        "· verifying book.sqlite",
        "· verifying tampered.sqlite",
    ]
    requested = [number for number, line in enumerate(lines) if " requests " in line]
    assert [lines[number + 1] for number in requested] == trains


FOR_PROGRAMS = re.compile(
    r"lineage:\d|Fraction\(|(?<![0-9a-z.-])\d{13}(?![0-9a-z])|\('|object at 0x|<class|\b(True|False)\b|[ :]None\b"
)
"""A node's number, a Python value, a time in milliseconds."""


def test_everything_that_is_printed_of_it_is_for_people(told: Told) -> None:
    """The screen, and what each command says of the book that is left; sums of loss units alone have so many digits."""
    screen = [line for line in told.screen.splitlines() if "in units of 2^-40 nat" not in line]
    assert [line for line in screen if FOR_PROGRAMS.search(line)] == []
    quoted, runs = shlex.quote(str(told.folder / "book.sqlite")), sorted(told.trained)
    parties = sorted({one.actor for one in told.trained.values()})
    lines = [
        *(f"log {quoted}{option}" for option in ("", " --refused")),
        *(f"{words} {quoted}" for words in ("standing", "verify", "db status", "policy breaches", "plan coalitions")),
        f"plan coalitions {quoted} --epsilon 2",
        f"plan merger {quoted} {' '.join(parties)}",
        *(f"plan {words} {quoted} {runs[0]}" for words in ("again", "publication")),
        f"plan transfer {quoted} {runs[-1]} {told.entries[5].actor}",
    ]
    epsilon = assemble()
    for line in lines:
        ran = CliRunner().invoke(epsilon, shlex.split(line))
        assert ran.exit_code in {0, 3}, (line, ran.output)
        assert ran.output, line
        assert [text for text in ran.output.splitlines() if FOR_PROGRAMS.search(text)] == [], line


def test_the_job_that_is_left_runs(told: Told, tmp_path: Path) -> None:
    """By the three commands on screen, in a copy of the folder and on free ports: a new run, leased and posted."""
    lines = told.screen.partition("Each in a terminal of its own:")[2].partition("To try next:")[0].split("\n")
    words = [shlex.split(line)[-2:] for line in lines if "epsilon " in line]
    assert words == [
        ["serve", f"{FOLDER}/profile.toml"],
        ["dev-issuer", f"{FOLDER}/profile.toml"],
        ["train", f"{FOLDER}/jobs/banyan-cedar-run-1.toml"],
    ]
    demo, state = tmp_path / "demo", tmp_path / "state"
    shutil.copytree(told.folder, demo)
    # The copy goes on apart from the folder it was made of, so it has a kept checkpoint of its own.
    shutil.copytree(OUTSIDE["XDG_STATE_HOME"] + "/epsilon-ledger", state / "epsilon-ledger")
    outside = {**OUTSIDE, "XDG_STATE_HOME": str(state)}
    profile, job = demo / "profile.toml", demo / "jobs" / "banyan-cedar-run-1.toml"
    for port in (8000, 8100):
        _put(profile, f"port = {port}", "port = 0")
    with _running("dev-issuer", str(profile)) as issuer:
        _put(profile, "http://127.0.0.1:8100", issuer)
        with _running("serve", str(profile), env=outside) as service:
            _put(job, "http://127.0.0.1:8000", service)
            _put(job, "http://127.0.0.1:8100", issuer)
            command = [EPSILON, "train", str(job), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=outside)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["steps"] == report["steps_charged"] > 0
    entries = entries_of(demo / "book.sqlite")
    added = [(one.kind, one.code.word) for one in entries[len(told.entries) :] if one.kind != "statement"]
    leases = [one for one in added if one == ("step_lease", "permitted")]
    assert added[: len(leases) + 3] == [
        ("charge", "pending"),
        ("key_release", "permitted"),
        *leases,
        ("post", "posted"),
    ]
    assert leases


def _put(path: Path, was: str, now: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert was in text
    path.write_text(text.replace(was, now), encoding="utf-8")


def test_the_forged_byte_is_named(told: Told) -> None:
    """The book verifies; its copy with one byte changed does not, and the entry is named on screen and off."""
    flat = re.sub(r"\s+", " ", told.screen)
    found = re.search(r"one byte of entry (\d+) is changed", flat)
    assert found
    index = int(found.group(1))
    assert told.entries[index].kind == "post"
    assert f"entry {index}: " in flat
    command = [EPSILON, "verify", f"{FOLDER}/tampered.sqlite"]
    done = subprocess.run(command, cwd=told.folder.parent, capture_output=True, text=True, check=False, env=OUTSIDE)
    assert (done.returncode, done.stderr.startswith(f"entry {index}: ")) == (7, True)


def test_data_is_encrypted_at_rest_and_the_test_split_belongs_to_no_partition(told: Told) -> None:
    """No partition's file holds its records in the clear; the public test records are none of the partitions'."""
    import numpy as np

    from api.demo import digits

    test, *parts = (_rows(digits.archive(one)) for one in (digits.TEST, digits.FIRST, digits.SECOND))
    for part, name in zip(parts, ("2026-q3", "2026-q4"), strict=True):
        stored = (told.folder / "data" / f"{name}.sealed").read_bytes()
        assert part[0].tobytes() not in stored
        assert part[:100].tobytes() not in stored
    places = [set(range(1797)[one]) for one in (digits.TEST, digits.FIRST, digits.SECOND)]
    assert not places[0] & places[1] | places[0] & places[2] | places[1] & places[2]
    assert len(test) == 360
    assert all(np.all((part >= 0) & (part <= 1)) for part in parts)


def _rows(archive: bytes) -> Any:  # noqa: ANN401 - a NumPy array
    import io

    import numpy as np

    with np.load(io.BytesIO(archive)) as arrays:
        return arrays["inputs"]


@contextmanager
def _running(*words: str, env: Mapping[str, str] = OUTSIDE) -> Iterator[str]:
    """A command that serves until it is interrupted; where it does."""
    with subprocess.Popen([EPSILON, *words], stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        line = next((one for one in process.stderr if " until interrupted." in one), "")
        try:
            yield re.sub(r".* (http://\S+) until interrupted\.\n", r"\1", line)
        finally:
            process.terminate()
            process.stderr.read()


def test_an_auditor_logs_in_and_reads_what_was_left(told: Told, tmp_path: Path) -> None:
    """With the profiles that the demonstration left, on other ports, and a browser without a screen."""
    served, auditor = told.folder / "profile-elsewhere.toml", told.folder / "auditor-elsewhere.toml"
    text = (told.folder / "profile.toml").read_text().replace("port = 8000", "port = 0")
    served.write_text(text.replace("port = 8100", "port = 0"))
    script = "import sys; from tests.factories.browser import Browser; Browser('auditor')(sys.argv[1])"
    browser = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} %s"
    person = {**OUTSIDE, "BROWSER": browser, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)}

    def epsilon(*words: str) -> str:
        done = subprocess.run([EPSILON, *words], capture_output=True, text=True, check=False, env=person)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with _running("dev-issuer", str(served)) as issuer:
        served.write_text(served.read_text().replace("http://127.0.0.1:8100", issuer))
        with _running("serve", str(served)) as service:
            mine = (told.folder / "auditor.toml").read_text().replace("http://127.0.0.1:8100", issuer)
            auditor.write_text(mine.replace("http://127.0.0.1:8000", service))
            assert epsilon("login", str(auditor)).startswith("Logged in as auditor of")
            accounts = json.loads(epsilon("account", str(auditor), "--json"))
    assert {one["partition"] for one in accounts} == {ref for ref, _ in told.accounts}


def test_a_plan_prices_the_same_from_its_own_words() -> None:
    """The plan that was charged and the plan that ran are one value: read back, it has the same digest."""
    plan = Plan(Fraction(1, 2), Fraction(27307, 4000), Fraction(1), 60, 350)
    assert Plan.of(parse_plan(plan.to_json())) == plan
    assert Plan.of(parse_plan(plan.to_json())).digest == plan.digest
