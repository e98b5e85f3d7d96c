"""Upgrade and downgrade: under the writer's lock, in one transaction, with the log verified at its end."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.audit.replay import Broken
from ledger.store.merkle_tables import latest_checkpoint
from ledger.store.tables import SCHEMA_REVISION
from ledger.verifier import LogKey
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, NotDone
from migrations.connect.exclusive_access import Limits, exclusive_transaction
from migrations.schema.revisions import bring_to, holds_book, known_revisions, revision_of
from migrations.transfer.log_check import Head, Step, verify_log


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did."""

    before: str | None
    after: str
    head: Head
    signed: bool

    def to_json(self, name: str) -> dict[str, object]:
        """For programs."""
        return {
            "book": name,
            "entries": self.head.size,
            "root": self.head.root.hex(),
            "schema": self.after,
            "schema_before": self.before,
            "signature_checked": self.signed,
        }

    def in_words(self, name: str) -> str:
        """For people."""
        if not self.head.size:
            return f"{name} is at schema {self.after}"
        signature = "its signature verified" if self.signed else "its signature not checked: name the key with --log"
        return (
            f"{name} is at schema {self.after}; its {self.head.size} entries are those of its newest checkpoint, "
            f"{signature}"
        )


def upgrade_book(place: Place, limits: Limits, key: LogKey | None, step: Step) -> Migrated:
    """Bring a book to the newest schema; make it where there is none.

    Args:
        place: the book, or a database without a table.
        limits: how long to wait.
        key: the log's key, with which the newest checkpoint's signature is checked; None checks its root alone.
        step: called with how many entries are verified, and of how many.

    Raises:
        SchemaUnknown: if a newer program made the book, if the database holds something else, or if the
            book lost a trigger.
        NotDone: if another process writes the book, or the time is up.
        Broken: if the log does not verify. In every case the book is as it was.
    """
    holds_book(place)
    return _migrate(place, SCHEMA_REVISION, limits, key, step)


def downgrade_book(place: Place, revision: str, limits: Limits, key: LogKey | None, step: Step) -> Migrated:
    """Bring a book to an older schema; never below the first, and never where a row of the log would go.

    Raises:
        Absent: if there is no book.
        NotDone, Broken: as :func:`upgrade_book`.
    """
    if not holds_book(place):
        raise Absent(f"there is no book at {place.display_name}")
    return _migrate(place, revision, limits, key, step, down=True)


def _migrate(  # noqa: PLR0913 - one private function under both directions
    place: Place, revision: str, limits: Limits, key: LogKey | None, step: Step, *, down: bool = False
) -> Migrated:
    with exclusive_transaction(place, limits) as connection:
        before = revision_of(connection, place.display_name)
        if down and before is not None and revision in known_revisions() and revision > before:
            raise NotDone(f"{place.display_name} is at {before}, below {revision}: that would be an upgrade")
        note = latest_checkpoint(connection) if before is not None else None
        bring_to(connection, revision, place.display_name)
        head = verify_log(connection, key, step)
        if head.note != note:
            raise Broken(None, "the newest checkpoint is not the one from before the migration")
    return Migrated(before, revision, head, signed=key is not None and head.note is not None)
