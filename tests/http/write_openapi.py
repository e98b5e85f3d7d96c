"""Write the OpenAPI document anew, after a change that is meant."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.http.test_openapi import COMMITTED
from tests.http.world import open_world


def main() -> None:
    """Ask a service for it."""
    with TemporaryDirectory() as folder, open_world(Path(folder)) as world:
        told = world.http.get("/v1/openapi.json").json()
    COMMITTED.write_text(json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
