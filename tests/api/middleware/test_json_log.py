"""Lines of the service's own log: when they are written, and what becomes of those that cannot be."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest

from api.middleware.json_log import JsonLines, LogLines


class _Writes(io.StringIO):
    """A stream that counts how often it is written to, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[list[str]] = []
        self.fails = False

    def write(self, text: str) -> int:
        if self.fails:
            raise OSError(errno.ENOSPC, "no space")
        self.messages.append([json.loads(line)["message"] for line in text.splitlines()])
        return len(text)


@pytest.fixture
def written() -> Iterator[tuple[logging.Logger, _Writes]]:
    """A logger whose lines alone go to a stream, and the stream."""
    stream, logger = _Writes(), logging.getLogger("lines of one test")
    handler = LogLines(stream)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger, stream
    logger.removeHandler(handler)
    handler.close()


def test_lines_of_one_turn_of_an_event_loop_are_written_together(written: tuple[logging.Logger, _Writes]) -> None:
    """In the next turn; a warning at once with those before it, and so what no event loop logs."""
    logger, stream = written

    async def log() -> list[list[str]]:
        logger.info("one")
        logger.info("two")
        before = [*stream.messages]
        await asyncio.sleep(0)
        logger.info("three")
        logger.warning("four")
        await asyncio.to_thread(logger.info, "five")
        logger.info("six")
        return before

    assert asyncio.run(log()) == []
    logger.info("seven")
    assert stream.messages == [["one", "two"], ["three", "four"], ["five"], ["six"], ["seven"]]


def test_a_line_that_waits_when_its_event_loop_ends_is_written_with_the_next(
    written: tuple[logging.Logger, _Writes],
) -> None:
    """Another event loop writes it too, or the end of the process."""
    logger, stream = written
    for name in ("one", "two"):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(_log_last(logger, name))
        loop.close()
    asyncio.run(_log_and_turn(logger))
    assert stream.messages == [["one", "two", "three"]]
    logger.handlers[0].flush()
    assert stream.messages == [["one", "two", "three"]]


async def _log_last(logger: logging.Logger, name: str) -> None:
    logger.info(name)
    # What the loop was to do next is not done any more.
    asyncio.get_running_loop().stop()


async def _log_and_turn(logger: logging.Logger) -> None:
    logger.info("three")
    await asyncio.sleep(0)


def test_a_line_that_cannot_be_written_stops_nothing(
    written: tuple[logging.Logger, _Writes], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is reported and lost, in an event loop and beside one; those after it are written."""
    logger, stream = written

    async def log() -> None:
        stream.fails = True
        logger.warning("one")
        logger.info("two")
        await asyncio.sleep(0)
        stream.fails = False
        logger.info("three")

    asyncio.run(log())
    logger.info("four")
    assert [one for some in stream.messages for one in some] == ["three", "four"]
    assert capsys.readouterr().err.count("Logging error") == 2
