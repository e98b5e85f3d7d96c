"""Documents checked before anybody signs them, and their schemas, on the command line."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner, Result

from ledger.wire.canonical_json import digest, dump
from policy.cli.documents import app
from policy.documents.json_schemas import KINDS, schema_of
from tests.factories.documented import policy_document
from tests.factories.documents import contract, plan
from tests.factories.people import BANKS
from tests.policy.documents.complete import FULL

RUN = CliRunner()


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_document_is_named_with_its_digest(kind: str, tmp_path: Path) -> None:
    """Whatever its kind and spelling; YAML and JSON have one canonical digest."""
    reported = []
    for name, data in (("a.json", dump(FULL[kind])), ("a.yaml", yaml.safe_dump(FULL[kind]).encode())):
        (tmp_path / name).write_bytes(data)
        done = RUN.invoke(app, ["document", "check", str(tmp_path / name), "--json"])
        assert done.exit_code == 0
        reported.append(json.loads(done.output))
        assert reported[-1]["document"] == digest(data)
    assert {one["canonical"] for one in reported} == {digest(dump(FULL[kind]))}
    assert {one["kind"] for one in reported} == {kind}


def test_a_fault_tells_where_it_is(tmp_path: Path) -> None:
    """In a sentence with line and column, and with the exit code of malformed input."""
    (tmp_path / "p.yaml").write_text("kind: policy\nv: 1\nlevels: no\n")
    done = RUN.invoke(app, ["document", "check", str(tmp_path / "p.yaml")])
    assert done.exit_code == 2
    assert "levels: 'no' means different things" in done.output
    assert "(line 3, column 9)" in done.output
    (tmp_path / "p.yaml").write_text("kind: plan\n")
    done = RUN.invoke(app, ["document", "check", str(tmp_path / "p.yaml"), "--json"])
    assert (done.exit_code, json.loads(done.output)["field"]) == (2, "kind")
    assert RUN.invoke(app, ["document", "check", str(tmp_path / "none.yaml")]).exit_code == 4


EVIL: Final = "x\x1b[2K\x1b[1G\r\u202e\npolicy.json: policy health v1, valid"


@pytest.mark.parametrize("place", ["a field", "a word", "the file"])
def test_what_a_document_of_others_quotes_moves_no_cursor(tmp_path: Path, place: str) -> None:
    """Its error could else erase itself on a terminal, and say that the document is valid."""
    file = tmp_path / (EVIL.replace("/", "") if place == "the file" else "p.json")
    document: dict[str, Any] = dict(FULL["policy"])
    if place == "a field":
        document[EVIL] = 1
    elif place == "a word":
        document["mechanisms"] = [EVIL]
    else:
        document["v"] = 9
    file.write_text(json.dumps(document))
    done = RUN.invoke(app, ["document", "check", str(file)])
    assert done.exit_code == 2, done.output
    assert {one for one in done.output if not one.isprintable()} == {"\n"}
    assert not [line for line in done.output.splitlines() if line.startswith("policy.json: ")]
    found = json.loads(RUN.invoke(app, ["document", "check", str(file), "--json"]).stdout)
    assert found["ok"] is False


def test_a_schema_is_written_out() -> None:
    """Of a known kind alone."""
    done = RUN.invoke(app, ["document", "schema", "contract"])
    assert json.loads(done.output) == schema_of("contract")
    assert RUN.invoke(app, ["document", "schema", "plan"]).exit_code == 2


def checked(tmp_path: Path, *, contract: dict[str, Any] | None = None, run: object = None, **changes: Any) -> Result:  # noqa: ANN401 - JSON
    """``document check`` of a policy, or of a contract under it, and of a plan."""
    files = {"policy": policy_document(**{"step_leases": True, **changes}), "contract": contract, "plan": run}
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_text(json.dumps(content))
    named = [] if contract is None else ["--policy", str(tmp_path / "policy")]
    tried = [] if run is None else ["--plan", str(tmp_path / "plan")]
    of = tmp_path / ("policy" if contract is None else "contract")
    return RUN.invoke(app, ["document", "check", str(of), *named, *tried])


def test_each_cap_shows_what_could_run_and_from_which_epsilon_on(tmp_path: Path) -> None:
    """Of the plan that is named; without one, whether anything could. No book is needed."""
    done = checked(tmp_path)
    assert done.exit_code == 0
    assert "lineage: ε 5 on any partition: a run can fit" in done.output
    done = checked(tmp_path, run=plan(60, "2"))
    assert done.exit_code == 0
    assert "warning" not in done.output
    done = checked(tmp_path, run=plan(60, "2"), lineage={"epsilon_max": "1"})
    assert done.exit_code == 0
    steps, least = re.findall(r"lineage: ε 1 on any partition: (\d+) of .* fits from ε ([0-9.]+) on", done.output)[0]
    assert 0 < int(steps) < 60
    assert "warning" not in checked(tmp_path, run=plan(60, "2"), lineage={"epsilon_max": least}).output
    assert "warning" not in checked(tmp_path, run=plan(int(steps), "2"), lineage={"epsilon_max": "1"}).output


def test_a_policy_without_step_leases_is_a_warning(tmp_path: Path) -> None:
    """In text and in JSON; one that asks for them has none, and a contract has none of its own."""
    done = checked(tmp_path, step_leases=None)
    assert done.exit_code == 0
    assert "warning: step_leases is not true: two copies" in done.output
    for leases, warnings in ((None, 1), (False, 1), (True, 0)):
        (tmp_path / "policy").write_text(json.dumps(policy_document(step_leases=leases)))
        done = RUN.invoke(app, ["document", "check", str(tmp_path / "policy"), "--json"])
        assert len(json.loads(done.output)["warnings"]) == warnings
    assert "warning" not in checked(tmp_path, contract=contract(BANKS[0]), run=plan(60, "2")).output


def test_a_contract_is_tried_under_its_policy(tmp_path: Path) -> None:
    """Its own caps where they are smaller; a cap that would be closed is a warning."""
    wide = contract(BANKS[0])
    assert "warning" not in checked(tmp_path, contract=wide, run=plan(60, "2")).output
    done = checked(tmp_path, contract={**wide, "lineage": {"epsilon_max": "0.5"}}, run=plan(60, "2"))
    assert done.exit_code == 0
    assert "warning: contract" in done.output
    assert "not one step" in done.output
    done = checked(tmp_path, contract={**wide, "run": {"epsilon_max": "1"}}, run=plan(60, "2"))
    assert "one run: ε 1 on any partition" in done.output


@pytest.mark.parametrize(
    ("changes", "of_contract", "reason"),
    [
        ({"lineage": {"epsilon_max": "0.001"}}, None, "no run ever"),
        ({"mechanisms": ["laplace"], "rules": ["reference"]}, None, "no run could ever"),
        ({}, {"run": {"epsilon_max": "2", "mechanisms": ["gaussian"]}}, "no run could ever"),
        ({}, {"lineage": {"epsilon_max": "0.001"}}, "no run ever"),
    ],
)
def test_a_document_that_lets_nothing_run_is_refused(
    tmp_path: Path, changes: dict[str, Any], of_contract: dict[str, Any] | None, reason: str
) -> None:
    """Before anyone signs it, with the reason."""
    done = checked(tmp_path, contract=None if of_contract is None else {**contract(BANKS[0]), **of_contract}, **changes)
    assert done.exit_code == 2
    assert reason in done.output


def test_a_policy_is_named_for_contracts_alone(tmp_path: Path) -> None:
    """And a fault in it is said to be its own."""
    (tmp_path / "p").write_text(json.dumps(policy_document()))
    (tmp_path / "c").write_text(json.dumps(contract(BANKS[0])))
    (tmp_path / "bad").write_text("kind: policy\n")
    for named, text in (
        (["p", "--policy", "p"], "--policy: is for a contract"),
        (["c", "--plan", "p"], "--plan: is for a policy"),
        (["c", "--policy", "bad"], "--policy"),
        (["p", "--plan", "bad"], "--plan"),
    ):
        done = RUN.invoke(app, ["document", "check", *(str(tmp_path / one) if one[0] != "-" else one for one in named)])
        assert done.exit_code == 2
        assert text in done.output
