"""A user's model file is tried in a process of its own, so that one that hangs or crashes ends that process alone.

It is no sandbox: the file runs as its user, here and in the run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Job

TRIAL_S: Final = 120
"""Seconds until a model must be there, PyTorch's loading included."""
_REFUSED: Final = 3


def try_models(job: Job) -> None:
    """Try each model of a job that is a function of a file, those that trials draw among them. Raises: Malformed."""
    drawn = () if job.tuning is None else job.tuning.space.get("model", ())
    for name in dict.fromkeys((job.model, *map(str, drawn))):
        if ":" in name:
            try_model(name, job.folder)


def try_model(name: str, folder: Path, seconds: float = TRIAL_S) -> None:
    """Make the model of ``FILE.py:FUNCTION`` in another process. Raises: Malformed."""
    command = [sys.executable, "-P", "-m", "trainer_adapter.job_models.model_trial", name, str(folder.absolute())]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise Malformed("model", f"{name} gave no model within {seconds:g} s") from None
    # A file may end its process with this very code, and say nothing.
    if done.returncode == _REFUSED and (lines := done.stderr.strip().splitlines()):
        raise Malformed("model", lines[-1])
    if done.returncode:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        if done.returncode == -signal.SIGKILL:
            how += ", as the system ends one that needs more memory than there is"
        raise Malformed("model", f"{name} ended its process with {how}")


def main() -> None:
    """In that process."""
    from trainer_adapter.job_models.models import make

    name, folder = sys.argv[1:]
    try:
        make(name, Path(folder))
    except Malformed as error:
        sys.stderr.write(f"\n{error.rule}\n")
        sys.exit(_REFUSED)


if __name__ == "__main__":
    main()
