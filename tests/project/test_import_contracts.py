"""The import contracts hold, and each one catches what it forbids."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())
CONTRACTS: dict[str, Any] = {contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}
PACKAGES: list[str] = PYPROJECT["tool"]["importlinter"]["root_packages"]

BREACHES = [
    # contract, file, line added to it
    ("layers", "ledger/mechanisms/plan.py", "import policy"),
    ("layers", "policy/__init__.py", "import api"),
    ("layers", "policy/__init__.py", "import client"),
    ("layers", "api/cli/main.py", "import trainer_adapter"),
    ("layers", "migrations/cli/main.py", "import api"),
    ("layers", "ledger/mechanisms/plan.py", "import epsilon_ledger"),
    ("command", "epsilon_ledger/__main__.py", "import ledger.cli"),
    ("ledger", "ledger/wire/exact_numbers.py", "import ledger.mechanisms.plan"),
    ("ledger", "ledger/domain/gate.py", "import ledger.accounting.renyi"),
    ("ledger", "ledger/added/__init__.py", "import ledger.book.book"),
    ("policy", "policy/checks/findings.py", "import policy.documents.policy"),
    ("policy", "policy/depa/run_privacy_cost.py", "import policy.planning.plan_search"),
    ("api", "api/http/problems.py", "import api.auth.access_tokens"),
    ("console", "api/console/frame/addresses.py", "import api.console.app"),
    ("console-writes-nothing", "api/console/views/models.py", "import ledger.book.book"),
    ("client", "client/keys/signer.py", "import client.http.transport"),
    ("trainer", "trainer_adapter/layers/rnn.py", "import trainer_adapter.dpsgd.engine"),
    ("migrations", "migrations/connect/errors.py", "import migrations.transfer.archive"),
    ("trainer-policy", "trainer_adapter/cli/main.py", "import policy"),
    ("pure", "ledger/mechanisms/plan.py", "import time"),
    ("pure", "ledger/filters/renyi.py", "from os import environ"),
    ("pure", "ledger/domain/gate.py", "import sqlalchemy"),
    ("pure", "ledger/domain/gate.py", "import ledger.book.book"),
    ("pure", "ledger/wire/canonical_json.py", "import ledger.files.atomic_file"),
    ("pure", "policy/planning/__init__.py", "import httpx"),
    ("pure", "policy/decisions/added.py", "import fastapi"),
    ("floats", "ledger/domain/gate.py", "import dp_accounting"),
    ("floats", "ledger/filters/renyi.py", "import numpy"),
    ("floats", "policy/__init__.py", "import scipy.stats"),
    ("core-only", "client/service/service.py", "import ledger.book.book"),
    ("core-only", "trainer_adapter/cli/main.py", "from ledger.store import tables"),
]


def test_the_contracts_hold() -> None:
    """No contract is broken in the tree as it stands."""
    done = _lint(HOME)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" KEPT") == len(CONTRACTS)


def _rounds() -> list[list[tuple[str, str, str]]]:
    """The breaches, at most one of each contract together, so that one run of the linter tries many."""
    rounds: list[list[tuple[str, str, str]]] = []
    for breach in BREACHES:
        free = (one for one in rounds if breach[0] not in {contract for contract, _, _ in one})
        one = next(free, None)
        if one is None:
            rounds.append([breach])
        else:
            one.append(breach)
    return rounds


@pytest.mark.parametrize("breaches", _rounds())
def test_a_breach_is_caught(breaches: list[tuple[str, str, str]], tmp_path: Path) -> None:
    """Broken on purpose in a copy of the tree, the contract that forbids the import names it."""
    shutil.copy(HOME / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(HOME / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for _, file, line in breaches:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        with (tmp_path / file).open("a") as broken:
            broken.write(f"\n{line}\n")
    done = _lint(tmp_path)
    assert done.returncode == 1, done.stdout
    for contract, file, line in breaches:
        name = CONTRACTS[contract]["name"]
        assert f"{name} BROKEN" in " ".join(done.stdout.split())
        report = done.stdout.rpartition(f"{name}\n{'-' * len(name)}\n")[2].partition("\n---")[0]
        importer = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = line.split()[1]
        assert f"{importer} -> {imported.partition('.')[0]}" in report or importer.endswith(".added"), report


def test_each_contract_is_broken_once() -> None:
    """No contract stands untried."""
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


def test_every_package_of_ledger_and_policy_is_core_or_shell() -> None:
    """A new package has to be listed as pure, or be one of the shells, so that it cannot escape the contracts."""
    packages = {
        f"{room}.{path.stem}"
        for room in ("ledger", "policy")
        for path in (HOME / room).iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    pure = set(CONTRACTS["pure"]["source_modules"])
    shell = set(CONTRACTS["core-only"]["forbidden_modules"])
    assert pure | shell | {"ledger.command_line", "ledger.files", "policy.cli"} == packages
    assert pure & shell == set()
    assert shell <= set(CONTRACTS["pure"]["forbidden_modules"])


def test_the_roots_of_pure_packages_hold_no_code() -> None:
    """What stands above the pure packages imports nothing: the contracts look at the packages below it."""
    for room in ("ledger", "policy"):
        (only,) = ast.parse((HOME / room / "__init__.py").read_text()).body
        assert isinstance(only, ast.Expr), room


def test_no_folder_holds_more_than_fourteen_modules() -> None:
    """A reader sees a folder at one glance."""
    crowded = {
        str(folder.relative_to(HOME)): count
        for package in PACKAGES
        for folder in [HOME / package, *(HOME / package).rglob("*")]
        if folder.is_dir() and (count := len([file for file in folder.glob("*.py") if file.stem != "__init__"])) > 14
    }
    assert crowded == {}


def test_nothing_pure_asks_datetime_for_the_time() -> None:
    """Dates are read and compared in the pure packages; the time of day is given to them."""
    pure = [
        path
        for package in CONTRACTS["pure"]["source_modules"]
        for path in [HOME / f"{package.replace('.', '/')}.py", *(HOME / package.replace(".", "/")).rglob("*.py")]
        if path.is_file()
    ]
    requested = [
        f"{path.relative_to(HOME)}:{node.lineno}"
        for path in pure
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"now", "today", "utcnow"}
    ]
    assert len(pure) > 100
    assert requested == []


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**environment, "COLUMNS": "200"},
    )
