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
    ("layers", "ledger/plan.py", "import policy"),
    ("layers", "policy/__init__.py", "import api"),
    ("layers", "policy/__init__.py", "import client"),
    ("layers", "api/cli.py", "import trainer_adapter"),
    ("layers", "migrations/cli.py", "import api"),
    ("layers", "ledger/plan.py", "import epsilon_ledger"),
    ("command", "epsilon_ledger/__main__.py", "import ledger.cli"),
    ("trainer-policy", "trainer_adapter/cli.py", "import policy"),
    ("pure", "ledger/plan.py", "import time"),
    ("pure", "ledger/rules/renyi.py", "from os import environ"),
    ("pure", "ledger/gate.py", "import sqlalchemy"),
    ("pure", "ledger/gate.py", "import ledger.book"),
    ("pure", "ledger/__init__.py", "import random"),
    ("pure", "policy/__init__.py", "import httpx"),
    ("pure", "policy/added.py", "import fastapi"),
    ("floats", "ledger/gate.py", "import dp_accounting"),
    ("floats", "ledger/rules/renyi.py", "import numpy"),
    ("floats", "policy/__init__.py", "import scipy.stats"),
    ("core-only", "client/service.py", "import ledger.book"),
    ("core-only", "trainer_adapter/cli.py", "from ledger import tables"),
]


def test_the_contracts_hold() -> None:
    """No contract is broken in the tree as it stands."""
    done = _lint(HOME)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(" KEPT") == len(CONTRACTS)


@pytest.mark.parametrize(("contract", "file", "line"), BREACHES)
def test_a_breach_is_caught(contract: str, file: str, line: str, tmp_path: Path) -> None:
    """Broken on purpose in a copy of the tree, the contract that forbids the import names it."""
    shutil.copy(HOME / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(HOME / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / file).open("a") as broken:
        broken.write(f"\n{line}\n")
    done = _lint(tmp_path)
    assert done.returncode == 1, done.stdout
    assert f"{CONTRACTS[contract]['name']} BROKEN" in " ".join(done.stdout.split())


def test_each_contract_is_broken_once() -> None:
    """No contract stands untried."""
    assert {contract for contract, _, _ in BREACHES} == set(CONTRACTS)


def test_every_module_of_ledger_is_core_or_shell() -> None:
    """A new module of `ledger` has to be listed, so that it cannot escape the contracts."""
    modules = {
        f"ledger.{path.stem}"
        for path in (HOME / "ledger").iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    core = _of_ledger(CONTRACTS["pure"]["source_modules"])
    shell = _of_ledger(CONTRACTS["core-only"]["forbidden_modules"])
    assert core | shell == modules
    assert core & shell == set()
    assert shell == _of_ledger(CONTRACTS["pure"]["forbidden_modules"])
    assert _of_ledger(CONTRACTS["floats"]["source_modules"]) == core - {"ledger.accounting"}


def test_every_package_of_ledger_is_listed_with_what_it_holds() -> None:
    """A package in the core stands in the lists with its modules too."""
    for package in sorted(path.parent.name for path in (HOME / "ledger").glob("*/__init__.py")):
        for contract in ("pure", "floats"):
            listed = CONTRACTS[contract]["source_modules"]
            assert (f"ledger.{package}" in listed) == (f"ledger.{package}.**" in listed)


def test_nothing_pure_asks_datetime_for_the_time() -> None:
    """Dates are read and compared in the pure rooms; the time of day is given to them."""
    shell = {name.removeprefix("ledger.") for name in _of_ledger(CONTRACTS["core-only"]["forbidden_modules"])}
    pure = [
        path
        for room in ("ledger", "policy")
        for path in (HOME / room).rglob("*.py")
        if room == "policy" or path.relative_to(HOME / room).parts[0].removesuffix(".py") not in shell
    ]
    asked = [
        f"{path.relative_to(HOME)}:{node.lineno}"
        for path in pure
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"now", "today", "utcnow"}
    ]
    assert len(pure) > len(PACKAGES)
    assert asked == []


def _of_ledger(listed: list[str]) -> set[str]:
    return {name for name in listed if name.startswith("ledger.") and not name.endswith(".**")}


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
