"""A line every few seconds while a process is waited for."""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console

from api.demo.heartbeat import heartbeat


def test_a_wait_is_reported_until_it_ends() -> None:
    """Also where nothing else is written; afterwards it is quiet."""
    lines: list[str] = []
    third = threading.Event()

    class Screen(Console):
        def print(self, *objects: Any, **_: Any) -> None:  # noqa: ANN401 - as rich declares it
            lines.extend(objects)
            if len(lines) == 3:
                third.set()

    with heartbeat(Screen(), "waiting", every_s=0.001):
        assert third.wait(60)
    count = len(lines)
    assert ("waiting" in lines[0], "still" in lines[0]) == (True, False)
    assert all("still waiting" in line for line in lines[1:])
    assert [one for one in threading.enumerate() if one.name == "heartbeat"] == []
    assert len(lines) == count
