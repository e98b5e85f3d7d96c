"""Has every operation of the generated Python client read each problem: ``read_problems.py`` reads problems from stdin.

The input is an object of problems by status. Writes, by operation, the codes that it read, by status; null where it
reads nothing.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from importlib import import_module
from typing import Any

import httpx

from client.http.endpoints import PROBLEM_TYPE


def read_by(operation: Any, client: Any, problems: dict[str, Any]) -> dict[str, str | None]:  # noqa: ANN401 - generated
    """The code of each problem, as one operation of the client reads it."""
    codes = dict[str, str | None]()
    for status, problem in problems.items():
        answer = httpx.Response(int(status), json=problem, headers={"content-type": PROBLEM_TYPE})
        parsed = operation._build_response(client=client, response=answer).parsed  # noqa: SLF001 - what its calls use
        codes[status] = None if parsed is None else parsed.code
    return codes


def main() -> None:
    """Read, and write."""
    problems: dict[str, Any] = json.load(sys.stdin)
    client = import_module("ledger_client").Client(base_url="http://here")
    modules = pkgutil.walk_packages(import_module("ledger_client.api").__path__, "ledger_client.api.")
    names = [module.name for module in modules if not module.ispkg]
    found = {name.rpartition(".")[2]: read_by(import_module(name), client, problems) for name in names}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
