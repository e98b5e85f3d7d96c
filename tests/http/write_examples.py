"""Take the examples of the OpenAPI document anew, from a book that a tour of the service fills."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.http import write_openapi
from tests.http.conforming import COMMITTED
from tests.http.tour import Tour
from tests.http.world import open_world


def main() -> None:
    """Go, and write them."""
    with TemporaryDirectory() as folder, open_world(Path(folder)) as world:
        tour = Tour(world)
        tour.go()
        told = tour.recorder.examples()
    write_openapi.write(COMMITTED.with_name("examples.json"), told)


if __name__ == "__main__":
    main()
