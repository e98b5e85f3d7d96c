"""An estimator on one chunk, in a process of its own: what it takes, how it fails and what it says stay in the room.

Chunks follow one another, each in a slot of the same length: a process that is not over at its end is killed, with all
that it began in its group, and one that is over earlier is waited for. It is no sandbox. So the time of the whole
depends on the number of chunks alone, and no chunk can take another's time. A process that fails, is late, or gives
something else than finite numbers gives NaN, which counts as the fixed answer.
"""

from __future__ import annotations

import io
import json
import os
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
Arrays = tuple[NDArray[Any], NDArray[Any]]
_RUNNER: Final = """
import io, json, os, sys
import numpy as np
length = int(sys.stdin.buffer.readline())
names = {"__name__": "estimator"}
output, sys.stdout = sys.stdout, open(os.devnull, "w")
exec(compile(sys.stdin.buffer.read(length), "estimator", "exec"), names)
with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as held:
    found = names[sys.argv[1]](held["inputs"], held["targets"])
output.write(json.dumps([float(one) for one in np.ravel(found)]))
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


def estimates(
    estimator: Estimator, source: bytes, chunks: list[Arrays], numbers: int, wait: Callable[[float], None] = time.sleep
) -> NDArray[np.float64]:
    """The estimator's numbers for each chunk, shape (chunks, numbers); NaN of those that fail or are late.

    Args:
        source: of the estimator's file.
        numbers: how many it gives.
        wait: waits some seconds.
    """
    outputs = np.full((len(chunks), numbers), np.nan)
    slot = estimator.milliseconds / 1_000
    for place, chunk in enumerate(chunks):
        until = time.monotonic() + slot
        values = _read(_run(estimator.function, source, chunk, slot))
        if len(values) == numbers:
            outputs[place] = values
        wait(max(0.0, until - time.monotonic()))
    return outputs


def _run(function: str, source: bytes, chunk: Arrays, seconds: float) -> bytes:
    file = io.BytesIO()
    np.savez(file, inputs=chunk[0], targets=chunk[1])
    given = b"%d\n" % len(source) + source + file.getvalue()
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(  # noqa: S603 - what the command's caller names
            [sys.executable, "-I", "-c", _RUNNER, function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(given, seconds)
        except (subprocess.TimeoutExpired, OSError):
            output = b""
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return output if process.returncode == 0 else b""


def _read(output: bytes) -> list[float]:
    """The numbers that a process wrote; none where it wrote something else."""
    if not output or len(output) > OUTPUT_BYTES_MAX:
        return []
    try:
        outputs = json.loads(output)
        return [float(number) for number in outputs]
    except (ValueError, TypeError, OverflowError):
        return []
