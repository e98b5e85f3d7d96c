"""What people who must decide are told on the command line, of a book that goes on being written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.cli.plan import app
from tests.factories.documents import NOW, PARTITION, plan, policy
from tests.factories.people import BANK_A, BANK_B, DAY_MS, STRANGER, short_name
from tests.factories.stored import StoredWorld, open_world

AT = ["--at", format_time(NOW + DAY_MS)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """A book with a few runs of each bank, and the clock a day later."""
    with open_world(tmp_path_factory.mktemp("planning")) as world:
        for place in range(6):
            sent = world.charge(f"run-{place}", (BANK_A, BANK_B)[place % 2], deadline=NOW + 2 * DAY_MS)
            assert world.submit(sent)[0].code.word == "pending"
        world.clock.now += DAY_MS
        yield world


def told(world: StoredWorld, *arguments: str) -> Result:
    """The command's answer; the book is as it was."""
    size = world.size
    result = CliRunner().invoke(app, [*arguments[:2], str(world.path), *arguments[2:]])
    assert world.size == size
    return result


def charge_file(folder: Path, **changes: c.Json) -> Path:
    """A charge as it would be quoted."""
    value: dict[str, Any] = {
        "contract": changes.pop("contract", "0" * 64),
        "partitions": changes.pop("partitions", [PARTITION]),
        "plan": plan(),
        **changes,
    }
    path = folder / "charge.json"
    path.write_text(json.dumps(value))
    return path


def test_a_run_is_planned(world: StoredWorld, tmp_path: Path) -> None:
    """The decision, what fits, and for how long; in words and as JSON; a refusal exits with 3 and says what passes."""
    path = charge_file(tmp_path, contract=world.contracts[BANK_A])
    shown = told(world, "plan", "run", str(path), "--actor", BANK_A, *AT, "--json")
    assert shown.exit_code == 0, shown.output
    value = json.loads(shown.stdout)
    assert value["decision"]["outcome"] == "pending"
    assert value["advice"] is None
    assert value["runs"]["more"] == min(one["runs"] for one in value["runs"]["accounts"])
    assert [one["full"] for one in value["lasts"]] == [False, False]
    words = told(world, "plan", "run", str(path), "--actor", BANK_A, *AT)
    assert f"{value['runs']['more']} such runs would be admitted one after another" in words.stdout
    long = told(world, "plan", "run", str(path), "--actor", BANK_A, *AT, "--epochs", "20", "--json")
    assert long.exit_code == 3
    value = json.loads(long.stdout)
    assert value["decision"]["binding"]["code"] == "run_above_contract"
    assert 100 < value["advice"]["steps"] == value["steps_most"]["steps"] < 320


def test_a_run_over_the_newest_slices_is_planned(tmp_path: Path) -> None:
    """A book resolves the names of ranges as a service's client does; a name that is none is refused by name."""
    with open_world(tmp_path, founded=False) as opened:
        opened.found(*opened.founding_with(partitions={f"w{week}": {} for week in range(3)}))
        contract = opened.contracts[BANK_A]
        words = ["--actor", BANK_A, "--at", format_time(NOW), "--json"]
        path = charge_file(tmp_path, contract=contract, partitions=["digits[last 2]"])
        shown = told(opened, "plan", "run", str(path), *words)
        assert shown.exit_code == 0, shown.output
        dataset, value = PARTITION.rpartition("/")[0], json.loads(shown.stdout)
        # Their accounts are equal: the first stands for both.
        assert {one["partition"] for one in value["lasts"]} == {f"{dataset}/w1"}
        ranges: list[c.Json] = [{"dataset": dataset, "first": "w1", "last": "w2"}]
        path = charge_file(tmp_path, contract=contract, partitions=[], ranges=ranges)
        assert json.loads(told(opened, "plan", "run", str(path), *words).stdout) == value
        for named, code, rule in (
            ("digits[last 4]", 2, "has 3 open partitions"),
            ("digits[w1..w9]", 4, "there is no partition"),
            ("digits[w2..w1]", 2, "is reversed"),
        ):
            refused = told(
                opened, "plan", "run", str(charge_file(tmp_path, contract=contract, partitions=[named])), *words
            )
            assert (refused.exit_code, rule in refused.output) == (code, True), refused.output


def test_a_policy_s_impact_is_reported(world: StoredWorld, tmp_path: Path) -> None:
    """Which accounts it would freeze, in words and as JSON."""
    path = tmp_path / "next.json"
    path.write_bytes(c.dump({**policy(), "lineage": {"epsilon_max": "2"}, "version": 2}))
    shown = told(world, "policy", "impact", str(path), *AT, "--json")
    assert shown.exit_code == 0, shown.output
    value = json.loads(shown.stdout)
    assert [one["name"] for one in value["partitions"]] == [PARTITION]
    assert len([one for one in value["accounts"] if one["freezes"]]) == 2
    assert {one["charge"] for one in value["pending"]} == {f"run-{place}" for place in range(6)}
    words = told(world, "policy", "impact", str(path), *AT)
    assert "1 partition would change, 2 accounts would be frozen, 6 pending charges would be affected." in words.stdout
    assert "lineage_epsilon_max 5 -> 2" in words.stdout


def test_a_recorded_charge_is_decided_again(world: StoredWorld, tmp_path: Path) -> None:
    """On the facts it met; at another size of the log; and under another policy, which says no."""
    first = told(world, "plan", "again", "run-0", "--json")
    assert first.exit_code == 0, first.output
    value = json.loads(first.stdout)
    assert (value["recorded"], value["decision"]["outcome"]) == ("pending", "pending")
    rooms = [check["text"] for check in value["decision"]["checks"] if check["code"] == "no_room"]
    assert all("is 0.0 % used" in text for text in rooms), "nobody had charged yet"
    later = json.loads(told(world, "plan", "again", "run-0", "--as-of", str(world.size), "--json").stdout)
    # The clean room of a run that stands is in use; a run somebody plans has none yet.
    assert "0.0 % used" not in later["decision"]["binding"]["text"]
    path = tmp_path / "strict.json"
    path.write_bytes(c.dump({**policy(), "run": {"epsilon_max": "0.001"}, "version": 7}))
    denied = told(world, "plan", "again", "run-0", "--policy", str(path))
    assert denied.exit_code == 3
    assert "Recorded outcome: pending. Re-evaluated:\npolicy_denied" in denied.stdout
    assert "[policy health-policy version 7]" in denied.stdout


def test_a_merger_and_coalitions_are_reported(world: StoredWorld) -> None:
    """The union's account, and the two banks that together exceed a cap."""
    shown = told(world, "plan", "merger", BANK_A, BANK_B, *AT, "--json")
    (account,) = json.loads(shown.stdout)["accounts"]
    assert (account["partition"], account["coalition"], len(account["before"])) == (PARTITION, None, 2)
    assert PARTITION in told(world, "plan", "merger", BANK_A, BANK_B, *AT).stdout
    found = told(world, "plan", "coalitions", *AT, "--epsilon", "4", "--json")
    (listed,) = json.loads(found.stdout)["partitions"]
    assert [one["members"] for one in listed["coalitions"]] == [[BANK_A, BANK_B]]
    assert (listed["complete"], listed["searched_up_to"]) == (True, 2)
    listed = told(world, "plan", "coalitions", *AT, "--epsilon", "4").stdout
    assert ("  2: " in listed, BANK_A in listed) == (True, False), "organisations are named by name"
    assert "no open partition" in told(world, "plan", "coalitions", *AT, "--epsilon", "0.001").stdout
    words = told(world, "plan", "coalitions", *AT, "--partition", PARTITION)
    assert "no coalition exceeds the cap" in words.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plan", "merger", STRANGER], 4, f"{STRANGER} is not registered"),
        (["plan", "coalitions", "--partition", "a/b/c"], 4, "there is no partition a/b/c"),
        (["plan", "again", "nothing"], 4, "there is no charge nothing"),
        (["plan", "again", "run-0", "--as-of", "999"], 4, "fewer than 999"),
        (["plan", "coalitions", "--epsilon", "1e3"], 2, "--epsilon"),
        (["plan", "coalitions", "--at", "tomorrow"], 2, "--at"),
        (["plan", "run", "nowhere.json", "--actor", BANK_A, "--at", "tomorrow"], 2, "--at"),
        (["policy", "impact", "nowhere.json"], 2, "nowhere.json"),
        (["plan", "run", "nowhere.json", "--actor", BANK_A], 2, "nowhere.json"),
    ],
)
def test_bad_input_is_one_plain_sentence(world: StoredWorld, arguments: list[str], code: int, said: str) -> None:
    """It names what is wrong, and exits with the code of its kind."""
    result = told(world, *arguments)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_that_cannot_be_used_is_named(world: StoredWorld, tmp_path: Path) -> None:
    """A folder, and a file longer than any document may be, which is not read to its end."""
    long = tmp_path / "long"
    with long.open("wb") as file:
        file.truncate(1 << 40)
    for path, said in ((tmp_path, "cannot be read: Is a directory"), (long, "bytes")):
        for command in (["policy", "impact", str(path)], ["plan", "again", "run-0", "--policy", str(path)]):
            result = told(world, *command)
            assert (result.exit_code, result.stderr.startswith("policy: ")) == (2, True), result.output
            assert said in result.stderr
        result = told(world, "plan", "run", str(path), "--actor", BANK_A)
        assert (result.exit_code, result.stderr.startswith("charge: "), said in result.stderr) == (2, True, True)


def test_a_charge_that_is_none_is_named(world: StoredWorld, tmp_path: Path) -> None:
    """A missing field, a contract nobody entered, another's organisation, and no book."""
    for changes, code in (({}, 4), ({"plan": {"kind": "dp_sgd"}}, 2), ({"partitions": ["a/b/c"]}, 2)):
        path = charge_file(tmp_path, **changes)
        assert told(world, "plan", "run", str(path), "--actor", BANK_A).exit_code == code
    path = charge_file(tmp_path, contract=world.contracts[BANK_A])
    assert told(world, "plan", "run", str(path), "--actor", STRANGER).exit_code == 4
    path.write_text("[]")
    assert told(world, "plan", "run", str(path), "--actor", BANK_A).exit_code == 2
    gone = CliRunner().invoke(app, ["plan", "coalitions", str(tmp_path / "none.sqlite")])
    assert (gone.exit_code, gone.stderr) == (
        4,
        f"there is no book at {tmp_path / 'none.sqlite'}: name its SQLite file, or a database's URL\n",
    )
    assert CliRunner().invoke(app, ["plan", "coalitions", str(path)]).exit_code == 2


LOAD: c.Object = {
    "kind": "mechanism",
    "mechanism": {
        "kind": "composed",
        "mechanisms": [
            {"kind": "poisson_gaussian", "noise_multiplier": noise, "probability": "0.0625", "steps": steps, "v": 1}
            for noise, steps in (("2", 40), ("4", 100))
        ],
        "v": 1,
    },
    "v": 1,
}


def prices(folder: Path, **changes: c.Json) -> Result:
    """The prices offered for a partition of this load."""
    body = {
        "data_key": "k",
        "dataset": "digits",
        "delta": "0.001",
        "epsilon": "3",
        "load": LOAD,
        "partition": "p",
        "provider": BANK_A,
        "records": 1000,
        "relation": "REPLACE_SPECIAL",
        "rule": "catalogue",
        "unit": "record",
        **changes,
    }
    path = folder / "partition.json"
    path.write_text(json.dumps(body))
    return CliRunner().invoke(app, ["plan", "prices", str(path), "--json"])


def test_prices_are_offered_with_the_runs_that_they_admit(tmp_path: Path) -> None:
    """Each is another corner: more of one kind is less of the other."""
    offers = json.loads(prices(tmp_path).stdout)["prices"]
    assert len(offers) >= 3
    assert all(len(one["prices"]) == len(one["alone"]) == 2 for one in offers)
    firsts = [one["alone"][0] for one in offers]
    assert firsts == sorted(firsts, reverse=True)
    assert min(one["alone"][1] for one in offers) < max(one["alone"][1] for one in offers)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rule": "renyi"}, "rule"),
        ({"load": {**plan(), "unit": "user"}}, "unit"),
        ({"slack": "0.5"}, "slack"),
        ({"delta": "0"}, "delta"),
    ],
)
def test_a_partition_without_prices_to_choose_is_named(tmp_path: Path, changes: dict[str, c.Json], named: str) -> None:
    """One sentence that names the field."""
    found = prices(tmp_path, **changes)
    assert found.exit_code == 2, found.output
    assert named in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_publication_and_a_transfer_are_previewed(world: StoredWorld) -> None:
    """Whose accounts grow, by whose name; what cannot be handed over is refused, and a model nobody knows not found."""
    world.submit(world.charge("seen"))
    size = world.size
    shown = json.loads(told(world, "plan", "publication", "seen", *AT, "--json").output)
    assert {did for one in shown["accounts"] for did in one["members"]} >= {BANK_A, BANK_B}
    words = told(world, "plan", "transfer", "seen", BANK_B, *AT)
    assert (words.exit_code, "0 would be frozen" in words.output) == (0, True)
    assert (short_name(BANK_B) in words.output, BANK_B in words.output) == (True, False), "by its name"
    assert told(world, "plan", "transfer", "seen", BANK_A, *AT).exit_code == 5
    assert told(world, "plan", "publication", "none", *AT).exit_code == 4
    assert world.size == size
