"""``epsilon up`` that interrupts itself at one moment: the moment, then what `epsilon` takes.

The moment is ``NAME:EVENT:NUMBER``: the function, ``call`` or ``return``, and which of them, from 1; a context manager
returns where its block begins. Or ``any:N``: whatever the program does as its N-th step, and again 300 calls later; or
``count:FILE``, which writes into FILE how many steps there are until the program waits, and interrupts it there. The
signal is a real one, and comes at the same place each time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final

from epsilon_ledger.__main__ import main

ROOT: Final = Path(__file__).parents[3]
OURS: Final = tuple(str(ROOT / one) for one in ("api", "client", "ledger"))
NO_MOMENT: Final = "none"
LATER: Final = 300
"""So many calls after the first interrupt comes another one."""


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_at(name: str, event: str, number: int) -> None:
    """Interrupt this process as a function of this project begins or ends for the ``number``-th time."""
    seen = 0

    def watch(frame: FrameType, happened: str, _value: Any) -> None:  # noqa: ANN401 - whatever is returned
        nonlocal seen
        code = frame.f_code
        if happened == event and code.co_name == name and (code.co_filename.startswith(OURS) or name == "communicate"):
            seen += 1
            if seen == number:
                sys.setprofile(None)
                _interrupt()

    sys.setprofile(watch)


def interrupt_after(number: int) -> None:
    """Interrupt this process at its ``number``-th step in :func:`main` and once more soon after it.

    A step is a call or its end. An interrupt that is raised inside a profile function removes it, so a trace function,
    which is another thing, counts the calls until the second one.
    """
    seen = 0
    later = 0

    def again(_frame: FrameType, _happened: str, _value: Any) -> None:  # noqa: ANN401 - whatever is called
        nonlocal later
        later += 1
        if later == LATER:
            sys.settrace(None)
            _interrupt()

    def watch(frame: FrameType, _happened: str, _value: Any) -> None:  # noqa: ANN401 - whatever is returned
        nonlocal seen
        # What comes before is the start of Python and this file.
        if seen or frame.f_code is main.__code__:
            seen += 1
        if seen == number:
            sys.setprofile(None)
            sys.settrace(again)
            _interrupt()

    sys.setprofile(watch)


def count_into(path: Path) -> None:
    """Write how many steps of :func:`main` there are until the program waits for a signal, and interrupt it."""
    seen = 0

    def watch(frame: FrameType, happened: str, _value: Any) -> None:  # noqa: ANN401 - whatever is returned
        nonlocal seen
        if seen or frame.f_code is main.__code__:
            seen += 1
        above = frame.f_back if frame.f_code is threading.Event.wait.__code__ else None
        if happened == "call" and above is not None and above.f_code.co_name == "run_development":
            sys.setprofile(None)
            path.write_text(str(seen), encoding="ascii")
            _interrupt()

    sys.setprofile(watch)


def watch_for(moment: str) -> None:
    """Do what the moment says."""
    kind, *rest = moment.split(":")
    if kind == "any":
        interrupt_after(int(rest[0]))
    elif kind == "count":
        count_into(Path(rest[0]))
    elif kind != NO_MOMENT:
        interrupt_at(kind, rest[0], int(rest[1]))


if __name__ == "__main__":
    said, *words = sys.argv[1:]
    sys.argv = ["epsilon", *words]
    watch_for(said)
    main()
