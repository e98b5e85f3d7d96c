"""Planning asked of the service by a profile: the very answers of the book, and of each party's own data alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from policy.checks.field_readers import format_time
from tests.factories.parties_walk import Desk
from tests.factories.people import BANK_A, HOSPITAL

REF = f"{HOSPITAL}/scans/2026-q4"
RUN = "charge.json --contract contract.yaml"


def _both(desk: Desk, words: str, profile: str, of_book: str = "") -> tuple[int, str]:
    """What the service answers; it is what the book answers at the same time."""
    book = desk.folder.parent / "book.sqlite"
    requested, read = (
        desk.run(f"epsilon {words.format(who)} {more}") for who, more in ((profile, ""), (book, of_book))
    )
    # Each names its own source in the commands that it prints.
    answers = [re.sub(r"^  \S.* plan run .*\n", "", one.out, flags=re.MULTILINE) for one in (requested, read)]
    assert (requested.code, answers[0]) == (read.code, answers[1]), requested.err + read.err
    return requested.code, requested.out


def test_a_provider_plans_for_the_consumer_of_its_contract(desk: Desk) -> None:
    """Now, at a time, and as the log was when it was shorter; a refusal exits with 3."""
    at = format_time(desk.world.clock.now)
    code, out = _both(desk, f"plan run {{}} {RUN} --at {at} --json", "hospital.toml", f"--actor {BANK_A}")
    assert (code, json.loads(out)["decision"]["outcome"]) == (0, "pending")
    code, out = _both(desk, f"plan run {{}} {RUN} --at {at} --epochs 9999", "hospital.toml", f"--actor {BANK_A}")
    assert code == 3
    assert re.search(r"FAIL .*\n  [0-9]+ checks pass; --verbose lists each", out)
    whole = _both(desk, f"plan run {{}} {RUN} --at {at} --verbose", "hospital.toml", f"--actor {BANK_A}")[1]
    assert "ok   contract_unknown: " in whole
    assert "(order " in whole
    assert "(order " not in out
    past = f"plan run {{}} {RUN} --as-of 7 --at {at} --json"
    _, out = _both(desk, past, "hospital.toml", f"--actor {BANK_A}")
    assert {one["used"] for one in json.loads(out)["runs"]["accounts"]} == {"0.0 %"}, "before the first charge"


def test_a_consumer_plans_its_own_run(desk: Desk) -> None:
    """What its provider is answered, now and in the past, but for the exact part of others in everyone's account."""
    own = json.loads(desk.run("epsilon charge show bank-a.toml run-1 --json").out)["index"]
    for more in ("", f"--as-of {own}"):
        requested = [
            json.loads(desk.run(f"epsilon plan run {who}.toml {RUN} {more} --json").out)
            for who in ("bank-a", "hospital")
        ]
        for name in ("noise_multiplier_least", "steps_most", "run_epsilon"):
            assert requested[0][name] == requested[1][name]
        assert requested[0]["decision"]["outcome"] == requested[1]["decision"]["outcome"] == "pending"
    # Between the entries of others it would see each of their runs.
    refused = desk.run(f"epsilon plan run bank-a.toml {RUN} --as-of {desk.world.size} --json")
    assert refused.code == 2
    assert "must be the entry of a charge of yours" in refused.err


def _tighter(desk: Desk) -> None:
    text = (desk.folder / "policy.yaml").read_text(encoding="utf-8")
    assert 'run: {epsilon_max: "4"}' in text
    (desk.folder / "tighter.yaml").write_text(text.replace('run: {epsilon_max: "4"}', 'run: {epsilon_max: "0.01"}'))


def test_a_provider_asks_under_another_policy_and_at_another_time(desk: Desk) -> None:
    """Word for word what the book answers to the same options."""
    _tighter(desk)
    now, late = f"--at {format_time(desk.world.clock.now)}", "--at 2028-01-01T00:00:00Z"
    for words in (f"plan run {{}} {RUN} {now} --policy tighter.yaml", f"plan run {{}} {RUN} {now} --days 1"):
        code, out = _both(desk, words, "hospital.toml", f"--actor {BANK_A}")
        assert (code, "FAIL run_above_policy" in out) == ((3, True) if "tighter" in words else (0, False))
    code, out = _both(desk, "plan again {} run-1 --policy tighter.yaml", "hospital.toml")
    assert (code, "FAIL run_above_policy" in out) == (3, True)
    for words in (
        f"plan merger {{}} {BANK_A} {HOSPITAL}",
        f"plan transfer {{}} run-1 {HOSPITAL}",
        "policy breaches {}",
    ):
        assert _both(desk, f"{words} {late}", "hospital.toml")[0] == 0
    for words in ("plan publication {} run-1", "plan coalitions {} --epsilon 0.1"):
        assert _both(desk, f"{words} {late}", "hospital.toml")[0] == 0


def test_a_consumer_asks_under_a_policy_without_coalitions_of_its_own(desk: Desk) -> None:
    """Of a policy that is not in force it gets the decision; of members that it chose nothing."""
    _tighter(desk)
    for words in (f"plan run bank-a.toml {RUN}", "plan again bank-a.toml run-1"):
        said = desk.run(f"epsilon {words} --policy tighter.yaml --json")
        assert (said.code, json.loads(said.out)["decision"]["outcome"]) == (3, "policy_denied"), said.err
    named = f"coalitions: [{{name: both, members: ['{BANK_A}', '{HOSPITAL}'], epsilon_max: '1'}}]\n"
    text = (desk.folder / "tighter.yaml").read_text(encoding="utf-8")
    (desk.folder / "prying.yaml").write_text(text + named)
    pried = desk.run(f"epsilon plan run bank-a.toml {RUN} --policy prying.yaml")
    assert (pried.code, pried.out) == (2, "")
    assert "--policy.coalitions: must be among those in force" in pried.err
    assert desk.run(f"epsilon plan run hospital.toml {RUN} --policy prying.yaml").code == 3
    late = desk.run("epsilon policy breaches bank-a.toml --at 2028-01-01T00:00:00Z")
    assert late.code == 2
    assert "--at: is for who sees every account" in late.err
    (desk.folder / "broken.yaml").write_bytes(b"\xff")
    for file, says in (("broken.yaml", "--policy: is not UTF-8"), ("none.yaml", "none.yaml")):
        said = desk.run(f"epsilon plan run bank-a.toml {RUN} --policy {file}")
        assert said.code == 2
        assert says in said.err


def test_a_recorded_charge_is_decided_again(desk: Desk) -> None:
    """On the state and at the time of its own entry, by its provider and by its consumer."""
    code, out = _both(desk, "plan again {} run-1 --json", "hospital.toml")
    assert (code, json.loads(out)["recorded"]) == (0, "pending")
    own = desk.run("epsilon plan again bank-a.toml run-1 --json")
    assert (own.code, json.loads(own.out)["decision"]["outcome"]) == (0, "pending")
    assert "Recorded outcome: pending. Re-evaluated:" in _both(desk, "plan again {} run-1", "hospital.toml")[1]
    missing = desk.run("epsilon plan again bank-a.toml bank-a-of-the-page")
    assert missing.code == 4


@pytest.mark.parametrize(
    "words",
    [
        f"plan merger {{}} {BANK_A} {HOSPITAL}",
        f"plan transfer {{}} run-1 {HOSPITAL}",
        "plan publication {} run-1",
        "plan coalitions {} --epsilon 0.1",
        f"plan coalitions {{}} --partition {REF}",
        "policy breaches {}",
    ],
)
def test_a_provider_asks_about_its_own_data(desk: Desk, words: str) -> None:
    """Who would know what; a consumer may ask none but what is over a cap."""
    for shown in (words, f"{words} --json"):
        assert _both(desk, shown, "hospital.toml")[0] == 0
    assert desk.run(f"epsilon {words.format('bank-a.toml')}").code == (0 if "breaches" in words else 6)


def test_an_sro_asks_what_a_policy_would_change(desk: Desk) -> None:
    """Its next version, of which only the time of asking differs."""
    text = (desk.folder / "policy.yaml").read_text(encoding="utf-8").replace("version: 1\n", "version: 2\n")
    Path(desk.folder / "next.yaml").write_text(text.replace('run: {epsilon_max: "4"}', 'run: {epsilon_max: "3"}'))
    book = desk.folder.parent / "book.sqlite"
    requested, read = (
        json.loads(desk.run(f"epsilon policy impact {who} next.yaml --json").out) for who in ("sro.toml", book)
    )
    assert {**requested, "at": 0} == {**read, "at": 0}
    assert REF in [one["name"] for one in requested["partitions"]]
    assert "would be frozen" in desk.run("epsilon policy impact sro.toml next.yaml").out


def test_what_only_a_book_answers_is_said(desk: Desk) -> None:
    """By the option as it was typed; nothing is asked."""
    said = desk.run(f"epsilon plan run bank-a.toml {RUN} --actor {BANK_A}")
    assert (said.code, said.err.partition(":")[2].strip().split(":")[0]) == (2, "--actor")
    assert "name a book instead of bank-a.toml" in said.err
