"""A refused run: the commands that the refusal prints are pasted, and each passes; a ten-thousandth less does not."""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from typing import Any

import pytest

from ledger.wire.exact_numbers import format_number
from tests.factories.parties_walk import Desk
from tests.factories.people import BANK_A, HOSPITAL

CONTRACT = "--contract contract.yaml"
TOO_MUCH = "--noise 3 --steps 400"


def _printed(shown: str) -> dict[str, list[str]]:
    """What would pass, by what it is about, each with the words of its command."""
    found = re.findall(r"would pass: (?:a|at|the) (noise|most|partition)[^\n]*\n +(\S[^\n]*)\n", shown, re.IGNORECASE)
    return {name: _words(line) for name, line in found}


def _words(line: str) -> list[str]:
    words = shlex.split(line)
    return words[words.index("epsilon_ledger") + 1 :] if "epsilon_ledger" in words else words[1:]


def _pasted(desk: Desk, words: list[str]) -> int:
    return desk.run(shlex.join(["epsilon", *words])).code


def _with(words: list[str], option: str, value: object) -> list[str]:
    place = words.index(option) + 1
    return [*words[:place], str(value), *words[place + 1 :]]


@pytest.mark.parametrize(
    "line",
    [
        f"quote bank-a.toml run.json {CONTRACT}",
        f"charge make bank-a.toml run.json {CONTRACT} --deadline 2026-12-02T00:00:00Z --dry-run",
        f"plan run bank-a.toml run.json {CONTRACT}",
        f"plan run hospital.toml run.json {CONTRACT} --days 60",
        f"plan run ../book.sqlite run.json {CONTRACT} --actor {BANK_A}",
    ],
)
def test_each_printed_command_passes_and_is_the_smallest(desk: Desk, line: str) -> None:
    """By the consumer's own profile, by the provider's, and on the book: more noise, or fewer steps."""
    refused = desk.run(f"epsilon {line} {TOO_MUCH}")
    assert refused.code == 3, refused
    found = _printed(refused.out + refused.err)
    assert found.keys() == {"noise", "most"}, refused
    size = desk.world.size
    noise, steps = found["noise"], found["most"]
    assert (_pasted(desk, noise), _pasted(desk, steps)) == (0, 0)
    least = Fraction(noise[noise.index("--noise") + 1])
    assert _pasted(desk, _with(noise, "--noise", format_number(least - Fraction(1, 10_000)))) == 3
    assert _pasted(desk, _with(steps, "--steps", int(steps[steps.index("--steps") + 1]) + 1)) == 3
    assert desk.world.size == size, "nothing was recorded"


def test_epochs_are_replaced_by_the_steps_that_fit(desk: Desk) -> None:
    """The command with fewer steps names no epochs, the one with more noise still does."""
    refused = desk.run(f"epsilon plan run bank-a.toml run.json {CONTRACT} --epochs 400")
    found = _printed(refused.out)
    assert refused.code == 3
    assert ("--epochs" in found["noise"], "--epochs" in found["most"]) == (True, False)
    assert [_pasted(desk, words) for words in found.values()] == [0, 0]
    both = desk.run(f"epsilon plan run bank-a.toml run.json {CONTRACT} --epochs 4 --steps 4")
    assert (both.code, "--epochs: sets the steps, as --steps does" in both.err) == (2, True)


def test_another_partition_is_named_in_its_command(desk: Desk) -> None:
    """Of two partitions, one is too small for the run: the command takes the other in its place."""
    rows = "\n".join(f"{one},{one % 9},{one % 2}" for one in range(5_000, 5_200))
    (desk.folder / "small.csv").write_text(f"scan,ink,digit\n{rows}\n")
    opened: dict[str, Any] = json.loads((desk.folder / "partition.json").read_text())
    small = {**opened, "partition": "small", "data_key": "scans-small", "records": 200, "epsilon": "0.05"}
    (desk.folder / "small.json").write_text(json.dumps(small))
    for line in (
        "dataset commit small.csv --target digit --identity scan --out small",
        "dataset open-partition hospital.toml small.json --commitments small/share/commitments-1.bin",
    ):
        done = desk.run(f"epsilon {line}")
        assert done.code == 0, done
    for command in ("quote", "plan run"):
        line = f"epsilon {command} bank-a.toml run.json {CONTRACT} --partition {HOSPITAL}/scans/small"
        refused = desk.run(line)
        assert refused.code == 3, refused
        words = _printed(refused.out + refused.err)["partition"]
        assert words[words.index("--partition") + 1] == f"{HOSPITAL}/scans/2026-q4"
        assert _pasted(desk, words) == 0


def test_a_plan_that_options_do_not_change_is_edited(desk: Desk) -> None:
    """The sentence says by how much, and the next line which file: no command would do it."""
    body: dict[str, Any] = json.loads((desk.folder / "run.json").read_text())
    steps = {"kind": "poisson_gaussian", "probability": "0.0625", "noise_multiplier": "0.5", "steps": 400, "v": 1}
    body["plan"] = {"kind": "mechanism", "v": 1, "mechanism": steps}
    (desk.folder / "other.json").write_text(json.dumps(body))
    for command in ("quote", "plan run"):
        refused = desk.run(f"epsilon {command} bank-a.toml other.json {CONTRACT}")
        assert refused.code == 3, refused
        shown = re.search(r"would pass: a noise multiplier[^\n]*\n +([^\n]*)", refused.out + refused.err, re.IGNORECASE)
        assert shown is not None, refused
        assert shown[1] == "edit other.json"
