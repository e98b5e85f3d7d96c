"""Write the OpenAPI document anew, after a change that is meant."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.http.conforming import COMMITTED
from tests.http.world import open_world


def write(path: Path, told: Any) -> None:  # noqa: ANN401 - JSON
    """One value a line, so that a change shows."""
    path.write_text(json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Ask a service for it."""
    with TemporaryDirectory() as folder, open_world(Path(folder)) as world:
        write(COMMITTED, world.http.get("/v1/openapi.json").json())


if __name__ == "__main__":
    main()
