"""A statement of the state when a test wants one, and not after so many seconds."""

from __future__ import annotations

from ledger.book.book import Book


def state_now(book: Book) -> None:
    """Have a book that makes no statements record one of its present state."""
    statements = book._writer.statements  # noqa: SLF001 - by itself it looks by the real clock
    statements.enabled = statements.closing = True
    book._writer.send(()).result()  # noqa: SLF001
    statements.enabled = statements.closing = False
