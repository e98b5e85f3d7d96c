"""What a development folder's book records, statements of state left out: these come whenever a book is closed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from api.setup.development_folder import PARTIES
from tests.factories.command_runs import run_command

MADE: Final = [*("organisation" for _ in PARTIES), "policy"]
"""By the first start, once."""


def recorded_kinds(book: Path) -> list[str]:
    """The kinds of the entries, in order."""
    done = run_command(["log", str(book), "--json"])
    assert done[0] == 0, done
    kinds = [json.loads(line)["kind"] for line in done[1].splitlines()]
    return [one for one in kinds if one != "statement"]
