"""The folder for a user's state that belongs to no project folder (XDG Base Directory Specification 0.8)."""

from __future__ import annotations

import os
from pathlib import Path


class NoStateFolder(FileNotFoundError):  # noqa: N818 - what is the case
    """The environment names no folder for a user's state."""


def state_folder() -> Path:
    """This program's folder: below XDG_STATE_HOME if that is an absolute path, else below ``~/.local/state``.

    Raises:
        NoStateFolder: if neither variable is set.
    """
    configured, home = (Path(os.environ.get(name, "")) for name in ("XDG_STATE_HOME", "HOME"))
    if not (configured.is_absolute() or home.is_absolute()):
        raise NoStateFolder("there is no folder for this user's state: set XDG_STATE_HOME or HOME")
    return (configured if configured.is_absolute() else home / ".local" / "state") / "epsilon-ledger"
