"""The page on contracts of other frameworks: its reader makes a contract of an agreement that the gate permits."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from epsilon_ledger.__main__ import assemble
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.epsilon_ledger.commands import parsed
from tests.factories.decision_facts import decide

PAGE: Final = [
    one for one in blocks(ROOT / "docs" / "contracts.md") if one.run_by == "tests/documentation/test_contracts_page.py"
]
AGREEMENT, READER, COMMANDS = (one.text for one in PAGE)


def _read(folder: Path, agreement: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - JSON
    """The page's reader on an agreement."""
    (folder / "agreement.json").write_text(json.dumps(agreement), encoding="utf-8")
    return subprocess.run([sys.executable, "-I", "-c", READER], cwd=folder, capture_output=True, text=True, check=False)


def test_an_agreement_becomes_a_contract_that_governs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes the check of documents and the gate, and says what the agreement said."""
    done = _read(tmp_path, json.loads(AGREEMENT))
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    check, sign = (line.split()[1:] for line in COMMANDS.splitlines())
    checked = CliRunner().invoke(assemble(), check)
    assert checked.exit_code == 0, checked.output
    assert parsed(sign) == ("contract", "sign")
    contract = json.loads(Path("contract.json").read_text(encoding="utf-8"))
    assert decide("contract", {"entered": contract}).permit
    assert (contract["runs_max"], contract["run"]) == (3, {"delta_max": "0.00001", "epsilon_max": "2.4"})
    run = {"contracts|0": contract}
    assert decide("charge", run).permit
    assert not decide("charge", {**run, "runs": 3}).permit
    assert not decide("charge", {**run, "now": "2026-12-01T00:00:00Z", "charge|deadline": contract["ends"]}).permit


def _without(place: int) -> Any:  # noqa: ANN401 - JSON
    agreement = json.loads(AGREEMENT)
    del agreement["permission"][0]["constraint"][place]
    return agreement


def _with(**changes: Any) -> Any:  # noqa: ANN401 - JSON
    agreement = json.loads(AGREEMENT)
    agreement["permission"][0] |= changes
    return agreement


def test_what_is_unknown_or_missing_is_refused_by_name(tmp_path: Path) -> None:
    """Every constraint once, none that nothing would hold; and nothing is written."""
    constraints = json.loads(AGREEMENT)["permission"][0]["constraint"]
    more = {"leftOperand": "spatial", "operator": "eq", "rightOperand": "IN"}
    faults = [(_without(place), "permission[0].constraint: lacks") for place in range(len(constraints))]
    faults += [
        (_with(constraint=[*constraints, more]), "constraint[6]: spatial is unknown"),
        (_with(constraint=[*constraints, constraints[3]]), "constraint[6]: count is unknown, or occurs twice"),
        (_with(action="sell"), "must permit to use"),
        (_with(duty=[{"action": "delete"}]), "must permit to use, and hold"),
        ({**copy.deepcopy(json.loads(AGREEMENT)), "prohibition": []}, "no prohibition or duty"),
    ]
    for agreement, text in faults:
        done = _read(tmp_path, agreement)
        assert done.returncode == 1
        assert text in done.stderr
        assert not (tmp_path / "contract.json").exists()
