"""Clients that kept generators make of the OpenAPI document, in two languages: each makes a signed charge."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from api.http.problems import Problem, ServiceCode
from ledger.wire import canonical_json as c
from tests.api.server.processes import Servers
from tests.api.wire.openapi_build import build
from tests.factories.people import BANK_A, CleanRoom
from tests.postgres import Databases, Server

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SAMPLES: Final = ROOT / "docs" / "samples"
GENERATOR: Final = ROOT / ".venv" / "clients"
"""openapi-python-client with what its clients need, and openapi-typescript: ``make .venv/.clients`` brings both."""
MODULES: Final = GENERATOR / "node_modules"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A process that serves a book with all that a charge needs."""
    postgres = Server()
    book = Databases(postgres.dsn)
    servers = Servers(tmp_path_factory.mktemp("servers"), book.make(book=True).url)
    try:
        servers.world.contract = servers.world.found_service(runs_max=10)
        yield servers
    finally:
        said = servers.close()
        book.let_go()
        postgres.close()
    assert not said


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """The OpenAPI document, as the service serves it."""
    path = tmp_path / "openapi.json"
    path.write_bytes(build())
    return path


def charged(servers: Servers, folder: Path, command: list[str], name: str, **environment: str) -> Any:  # noqa: ANN401
    """What the client prints of its charge ``name``."""
    world, (server,) = servers.world, servers.running(1)
    world.bank.save(folder / "bank.pem")
    body = world.charge_body(world.contract, CleanRoom())
    (folder / "body.json").write_bytes(world.command_bytes(world.bank, BANK_A, "charge", body, "not this one"))
    requested = [*command, server.url, str(folder / "bank.pem"), str(folder / "body.json"), name]
    token = world.everybody.token(BANK_A)
    done = subprocess.run(
        requested,
        cwd=folder,
        env={**os.environ, "TOKEN": token, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


MADE: Final = {
    "quoted": "pending",
    "statuses": [201, 200],
    "state": "pending",
    "listed": True,
    "refused": "id_reused",
}
"""A quote, a new charge, the same command again, the charge as it is read, and another command under its id."""


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    """Run a tool that must do without a complaint."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


def generate_python(folder: Path, document: Path) -> dict[str, Any]:
    """Generate the Python client into a folder; the operations of the document, each of which it has, by id."""
    (folder / "generator.yml").write_text("post_hooks: []\n")
    client, where = folder / "ledger_client", {"PYTHONPATH": str(GENERATOR)}
    generate = (sys.executable, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none")
    run(*generate, "--output-path", client, "--config", folder / "generator.yml", cwd=folder, **where)
    generated = {one.stem for one in (client / "api").glob("*/*.py")} - {"__init__"}
    paths = json.loads(document.read_bytes())["paths"]
    operations = {operation["operationId"]: operation for path in paths.values() for operation in path.values()}
    assert generated == operations.keys()
    return operations


def test_a_python_client_reads_every_problem(document: Path, tmp_path: Path) -> None:
    """Of each operation and status that the document describes, the code; of any other status, nothing."""
    operations = generate_python(tmp_path, document)
    problems = {str(code.http_status): code for code in ServiceCode}
    bodies = {status: Problem(code, "a reply at the edge", retry_s=1).details for status, code in problems.items()}
    done = subprocess.run(
        [sys.executable, str(HERE / "read_problems.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(GENERATOR), str(tmp_path), str(ROOT)])},
        input=c.dump({status: details.to_json() for status, details in bodies.items()}).decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"429", "503"} <= set.intersection(*(set(one["responses"]) for one in operations.values()))
    assert found == {
        name: {status: code.word if status in operation["responses"] else None for status, code in problems.items()}
        for name, operation in operations.items()
    }


def test_a_python_client_makes_a_charge(servers: Servers, document: Path, tmp_path: Path) -> None:
    """Every operation and every answer is generated."""
    generate_python(tmp_path, document)
    for name in (SAMPLES / "sign.py", SAMPLES / "charge.py"):
        shutil.copy(name, tmp_path)
    found = charged(servers, tmp_path, [sys.executable, "charge.py"], "by-python", PYTHONPATH=str(GENERATOR))
    assert found == MADE


def test_a_typescript_client_makes_a_charge(servers: Servers, document: Path, tmp_path: Path) -> None:
    """The sample is checked against the generated types under ``strict``."""
    for name in (SAMPLES / "sign.mjs", SAMPLES / "charge.ts", HERE / "tsconfig.json", HERE / "package.json"):
        shutil.copy(name, tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    run(MODULES / ".bin" / "openapi-typescript", document, "-o", "ledger.ts", cwd=tmp_path)
    run(MODULES / ".bin" / "tsc", cwd=tmp_path)
    assert charged(servers, tmp_path, ["node", "built/charge.js"], "by-typescript") == MADE
