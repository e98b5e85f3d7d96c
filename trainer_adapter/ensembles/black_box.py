"""An estimator on one chunk, in a process of its own: what it takes, how it fails and what it says stay in the room.

Chunks follow one another, each in a slot of the same length. The slot begins before the chunk is written down for its
process. One that is not over nine tenths of it later is killed, with all that it began in its group, and what it left
is cleared away in the last tenth; one that is over earlier is waited for. It is no sandbox. So the time of the whole
depends on the number of chunks alone, and no chunk can take another's time. A process that fails, is late, or gives
something else than finite numbers gives NaN, which counts as the fixed answer.

What it prints goes nowhere: its numbers leave by a pipe of their own, in one line, of which no more is read than an
answer may have. So neither a process that it leaves behind nor one that writes without end holds the room up.
"""

from __future__ import annotations

import io
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.wire.malformed import Malformed
from trainer_adapter.job.estimator import Estimator

SOURCE_BYTES_MAX: Final = 1 << 20
OUTPUT_BYTES_MAX: Final = 1 << 16
CLEARED_SHARE: Final = 1 / 10
"""Of a slot: the time to kill a process that is late, and to clear away what it left."""
Clock = Callable[[], float]
Arrays = tuple[NDArray[Any], NDArray[Any]]
_RUNNER: Final = """
import io, json, os, sys
import numpy as np
length = int(sys.stdin.buffer.readline())
names = {"__name__": "estimator"}
output = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
exec(compile(sys.stdin.buffer.read(length), "estimator", "exec"), names)
with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as held:
    found = names[sys.argv[1]](held["inputs"], held["targets"])
output.write(json.dumps([float(one) for one in np.ravel(found)]) + "\\n")
output.flush()
"""


def read_source(estimator: Estimator) -> bytes:
    """The file of a job's estimator, as it runs. Raises: Malformed, OSError."""
    with estimator.file.open("rb") as opened:
        source = opened.read(SOURCE_BYTES_MAX + 1)
    if len(source) > SOURCE_BYTES_MAX:
        raise Malformed("estimator", f"{estimator.file.name} has more than {SOURCE_BYTES_MAX} bytes")
    try:
        compile(source, estimator.file.name, "exec")
    except (SyntaxError, ValueError) as error:
        raise Malformed("estimator", f"{estimator.file.name} is no Python: {error}") from None
    return source


def estimates(  # noqa: PLR0913, PLR0917 - a clock beside what it is asked
    estimator: Estimator,
    source: bytes,
    chunks: list[Arrays],
    numbers: int,
    wait: Callable[[float], None] = time.sleep,
    clock: Clock = time.monotonic,
) -> NDArray[np.float64]:
    """The estimator's numbers for each chunk, shape (chunks, numbers); NaN of those that fail or are late.

    Args:
        source: of the estimator's file.
        numbers: how many it gives.
        wait: waits some seconds.
        clock: seconds that only grow.
    """
    outputs = np.full((len(chunks), numbers), np.nan)
    slot = estimator.milliseconds / 1_000
    for place, chunk in enumerate(chunks):
        # One look at the clock for the process and for the slot: what comes before the process is within both.
        begun = clock()
        values = _read(_run(estimator.function, source, chunk, begun + slot * (1 - CLEARED_SHARE), clock))
        if len(values) == numbers:
            outputs[place] = values
        wait(max(0.0, begun + slot - clock()))
    return outputs


def _run(function: str, source: bytes, chunk: Arrays, until: float, clock: Clock) -> bytes:
    file = io.BytesIO()
    np.savez(file, inputs=chunk[0], targets=chunk[1])
    given = b"%d\n" % len(source) + source + file.getvalue()
    # What a program made of its folder is its own affair, too: an error of clearing it away would end the run.
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(  # noqa: S603 - what the command's caller names
            [sys.executable, "-I", "-c", _RUNNER, function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=folder,
            env={"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            output = _answered(process, given, until, clock)
            if output:
                process.wait(max(0.0, until - clock()))
        except (subprocess.TimeoutExpired, OSError):
            output = b""
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
    return output if process.returncode == 0 else b""


def _answered(process: subprocess.Popen[bytes], given: bytes, until: float, clock: Clock) -> bytes:
    """The line that a process writes by a time of the clock, while it is given its input; else nothing."""
    source, sink = process.stdout, process.stdin
    assert source is not None
    assert sink is not None
    rest, output = memoryview(given), b""
    os.set_blocking(sink.fileno(), False)
    with selectors.DefaultSelector() as ready:
        ready.register(source, selectors.EVENT_READ)
        ready.register(sink, selectors.EVENT_WRITE)
        while len(output) <= OUTPUT_BYTES_MAX and (left := until - clock()) > 0:
            for key, _ in ready.select(left):
                if key.fileobj is sink:
                    rest = rest[os.write(sink.fileno(), rest) :]
                    if not rest:
                        ready.unregister(sink)
                        sink.close()
                    continue
                more = os.read(source.fileno(), OUTPUT_BYTES_MAX)
                output += more
                if not more or output.endswith(b"\n"):
                    return output
    return b""


def _read(output: bytes) -> list[float]:
    """The numbers that a process wrote; none where it wrote something else."""
    if not output or len(output) > OUTPUT_BYTES_MAX:
        return []
    try:
        outputs = json.loads(output)
        return [float(number) for number in outputs]
    except (ValueError, TypeError, OverflowError):
        return []
