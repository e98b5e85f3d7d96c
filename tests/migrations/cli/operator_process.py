"""A process that runs ``epsilon db`` until it is killed: ``python -m tests.migrations.cli.operator_process``.

A line of JSON on standard input, ``{"arguments":[...],"die":17}``, makes it fork an operator who runs the command
and is killed at the 17th thing that it does to a database or to a file's name. It reports ``["did", N, CODE, OUTPUT]``
when a command ends by itself, with how many such things it did (:mod:`tests.factories.loaded_process`).

``"die":"named"`` instead of a number kills it when the file that it makes has its name, and its temporary name too.

``{"arguments":[...],"warm":true}`` runs a command in the process itself: the fork then spares each operator the
seconds that loading takes, and the pricing of plans.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool
from typer.testing import CliRunner

import ledger.accounting
import ledger.audit.replay
import migrations.cli.status
import migrations.cli.upgrade
import migrations.transfer.book_transfer
from migrations.cli.main import app
from tests.factories.loaded_process import Job, report, serve

LOADED: Final = (
    ledger.accounting,
    ledger.audit.replay,
    migrations.transfer.book_transfer,
    migrations.cli.status,
    migrations.cli.upgrade,
)
NAMES_CHANGED: Final = frozenset({"os.link", "os.remove", "os.rename", "sqlite3.connect", "tempfile.mkstemp"})


def _warm(job: Job) -> None:
    result = CliRunner().invoke(app, ["db", *job["arguments"]])
    report("did", 0, result.exit_code, result.output)


def _operate(job: Job) -> None:
    done, die = 0, job["die"]

    def count(*args: Any, **named: Any) -> None:  # noqa: ANN401 - a listener of any event
        nonlocal done
        del args, named
        done += 1
        if done == die:
            os.kill(os.getpid(), signal.SIGKILL)

    def audited(name: str, args: tuple[object, ...]) -> None:
        if die == "named" and name == "os.remove" and str(args[0]).endswith(".part"):
            os.kill(os.getpid(), signal.SIGKILL)
        if name in NAMES_CHANGED:
            count()

    for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, moment, count)
    # A connection goes back to its pool after its commit.
    event.listen(Pool, "checkin", count)
    sys.addaudithook(audited)
    result = CliRunner().invoke(app, ["db", *job["arguments"]])
    report("did", done, result.exit_code, result.output)


if __name__ == "__main__":
    serve(_operate, _warm)
