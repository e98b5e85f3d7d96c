"""A folder that gets its name only once all its files are written and synchronised.

It is filled as ``.NAME.*.part`` beside its place. A killed process may leave that behind, which may be deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST
from pathlib import Path
from secrets import token_hex
from typing import Final

from ledger.files.atomic_file import sync_folder

PRIVATE_FOLDER: Final = 0o700
"""The mode of a folder that only its owner may open."""
SHARED_FOLDER: Final = 0o777
"""The mode of a folder that others may open as the umask allows."""


@contextmanager
def fresh_folder(folder: Path, option: str, *, mode: int = PRIVATE_FOLDER) -> Iterator[Path]:
    """A folder under a temporary name, which gets its own when the block ends without error, else it is deleted.

    Args:
        folder: its place; its parent exists. The caller synchronises the files in it.
        option: the command's option that names it, for the message.
        mode: its permissions, less the umask.

    Raises:
        FileExistsError: if there is something of that name.
        OSError: naming ``folder`` where the user knows no other name.
    """
    if os.path.lexists(folder):
        raise FileExistsError(EEXIST, f"is there already: name another {option}, nothing is replaced", str(folder))
    made = folder.with_name(f".{folder.name}.{token_hex(8)}.part")
    try:
        made.mkdir(mode=mode)
        yield made
        for place, _, _ in os.walk(made, topdown=False):
            sync_folder(Path(place))
        made.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise _with_name(error, folder) from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _with_name(error: OSError, folder: Path) -> OSError:
    """The same error with a file name that the user knows: a full disk names none, and ours are temporary."""
    if error.filename is None or ".part" in str(error.filename):
        return OSError(error.errno, error.strerror or "cannot be written", str(folder))
    return error
