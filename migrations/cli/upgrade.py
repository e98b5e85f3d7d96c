"""Upgrade and downgrade: under the writer's lock, in one transaction, with the log verified at its end."""

from __future__ import annotations

from dataclasses import replace

from client.cli.command_group import Result
from ledger.audit.replay import VerificationFailed
from ledger.store.engine import READ_S
from ledger.store.merkle_tables import latest_checkpoint
from ledger.store.tables import SCHEMA_REVISION
from ledger.verifier import LogKey
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, NotDone
from migrations.connect.exclusive_access import Limits, exclusive_transaction
from migrations.schema.revisions import bring_to, holds_book, known_revisions, revision_of
from migrations.transfer.log_check import Head, Step, verify_log


def migrate(place: Place, limits: Limits, key: LogKey | None, step: Step, *, down_to: str | None = None) -> Result:
    """Upgrade a book to the newest schema, creating it if there is none; or downgrade it to an older one.

    Args:
        place: the book, or a database without a table.
        limits: how long to wait.
        key: the log's key, with which the newest checkpoint's signature is checked; None checks its root alone.
        step: called with how many entries are verified, and of how many.
        down_to: the older schema; never below the first, and never if a row of the log would be deleted.

    Raises:
        Absent: if there is no book whose schema could become older.
        SchemaUnknown: if a newer program made the book, if the database holds something else, or if the
            book lost a trigger.
        NotDone: if another process writes the book, the time is up, or a file of another database lies beside the name
            of a new one.
        VerificationFailed: if the log does not verify. In every case the book is unchanged.
    """
    name, revision = place.display_name, SCHEMA_REVISION if down_to is None else down_to
    if not holds_book(place) and down_to is not None:
        raise Absent(f"there is no book at {name}")
    # A process that is halted keeps the lock of the log no longer than this.
    with exclusive_transaction(place, replace(limits, idle_s=READ_S)) as connection:
        before = revision_of(connection, name)
        if down_to is not None and before is not None and before < down_to and down_to in known_revisions():
            raise NotDone(f"{name} is at {before}, below {down_to}: that would be an upgrade")
        note = latest_checkpoint(connection) if before is not None else None
        bring_to(connection, revision, name)
        head = verify_log(connection, key, step)
        if head.note != note:
            raise VerificationFailed(None, "the newest checkpoint is not the one from before the migration")
    return _result(name, before, revision, head, signed=key is not None and head.note is not None)


def _result(name: str, before: str | None, after: str, head: Head, *, signed: bool) -> Result:
    value = {
        "book": name,
        "entries": head.size,
        "root": head.root.hex(),
        "schema": after,
        "schema_before": before,
        "signature_checked": signed,
    }
    signature = "its signature verified" if signed else "its signature not checked: name the key with --log"
    log = f"; its {head.size} entries are those of its newest checkpoint, {signature}" if head.size else ""
    return Result(value, f"{name} is at schema {after}{log}")
