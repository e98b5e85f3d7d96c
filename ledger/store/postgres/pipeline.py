"""A batch in one pipeline: its statements and its commit are sent without waiting for the answer to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection

from ledger.store.engine import announce

COMMIT: Final = "COMMIT"
"""The statement, and how the server says that it was one."""


@contextmanager
def committed_together(connection: Connection) -> Iterator[None]:
    """Send the statements of the block, which return no rows, and the commit without waiting for each (a pipeline).

    The commit is a statement like them, and the end of the pipeline sends what is left of them all: the driver's own
    commit sends what the server takes at once, and then waits for the answer to what it has not sent. A pipeline ends
    with a message after which the server does not count the session as idle, however long nothing follows.

    Raises:
        psycopg.Error: the first error of any, at the end of the block; or if the server has not committed, or warns
            that a standby may not have it.
    """
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection):
        warnings = list[str]()

        def note(notice: Diagnostic) -> None:
            # Its text can be read now, and not later.
            if notice.severity_nonlocalized == "WARNING":
                warnings.append(str(notice.message_primary))

        driver.add_notice_handler(note)
        try:
            with driver.pipeline():
                yield
                ended = driver.cursor()
                announce(connection, ended, COMMIT)
                ended.execute(COMMIT, prepare=False)
        finally:
            driver.remove_notice_handler(note)
        _check_committed(ended, warnings)
    else:
        yield
    # A pipeline has committed, and this tells SQLAlchemy.
    connection.commit()


def _check_committed(ended: psycopg.Cursor[Any], warnings: Sequence[str]) -> None:
    """Raises: OperationalError, unless the answer to a commit says that all is done."""
    if warnings:
        raise psycopg.OperationalError(f"the server warned at a commit: {warnings[0]}")
    # A transaction that has failed ends by a ROLLBACK, without an error.
    if ended.statusmessage != COMMIT or ended.connection.info.transaction_status is not TransactionStatus.IDLE:
        raise psycopg.OperationalError(f"the server has not committed: it answered {ended.statusmessage}")
