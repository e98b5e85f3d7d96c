"""The least that pairs cost: the same rows of the same tables, by the raw driver, with the same group commit.

Rows are those that the book wrote for one charge and for its settlement, under other names. Nothing is read, verified
or decided; leaves are hashed, nodes of the tree made, and each commit's root is signed.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from concurrent.futures import Future
from typing import Any, Final

import psycopg
from sqlalchemy import make_url

from ledger.book.book import Submission
from ledger.log import merkle
from ledger.log.checkpoint import sign
from ledger.store.engine import engine_of, url_of
from ledger.verifier import Checkpoint, leaf_hash
from tests.bench.grown import TINY
from tests.factories.people import LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld

APPENDED: Final = ("entry", "signing_key")
PUT: Final = ("charge", "account")
KEYS: Final = {"charge": "(id)", "account": "(partition, holder, coordinate)"}
BATCH_MAX: Final = 512
Rows = dict[str, list[dict[str, Any]]]


class Floor:
    """A book's tables without a book; ``pair`` is what a client waits for, as ``Book.submit`` is."""

    def __init__(self, world: StoredWorld) -> None:
        """Take the rows of one pair from an open book, and its place."""
        self._rows = [_written(world, world.charge("sample", run=TINY)), _written(world, world.settle("sample", 1))]
        self._postgres = make_url(url_of(world.url)).get_backend_name() == "postgresql"
        # The tree goes on from nodes taken as zeros: nothing here is read back.
        self._edge: dict[int, bytes] = dict.fromkeys(range(64), bytes(32))
        with world.book.read() as facts:
            self._size = facts.size
        world.book.close()
        self._url = world.url
        self._waiting: queue.SimpleQueue[tuple[str, int, Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def pair(self, name: str) -> None:
        """A charge, and when it is durable its settlement."""
        for phase in (0, 1):
            done: Future[None] = Future()
            self._waiting.put((name, phase, done))
            done.result()

    def batch(self, names: list[str], phase: int) -> None:
        """One call's worth."""
        futures: list[Future[None]] = [Future() for _ in names]
        for name, done in zip(names, futures, strict=True):
            self._waiting.put((name, phase, done))
        for done in futures:
            done.result()

    def close(self) -> None:
        """End the writer."""
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        connection = self._connected()
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < BATCH_MAX and not self._waiting.empty():
                more = self._waiting.get()
                if more is None:
                    self._waiting.put(None)
                    break
                batch.append(more)
            self._commit(connection, [(name, phase) for name, phase, _ in batch])
            for _, _, done in batch:
                done.set_result(None)
        connection.close()

    def _connected(self) -> Any:  # noqa: ANN401 - either driver's
        if self._postgres:
            url = make_url(url_of(self._url)).set(drivername="postgresql")
            return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
        connection = sqlite3.connect(str(make_url(self._url).database), isolation_level=None)
        assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _commit(self, connection: Any, batch: list[tuple[str, int]]) -> None:  # noqa: ANN401
        rows: Rows = {table: [] for table in (*APPENDED, *PUT)}
        nodes: list[dict[str, Any]] = []
        for name, phase in batch:
            for table, samples in self._rows[phase].items():
                rows[table] += [_renamed(table, one, name, self._size) for one in samples]
            data = rows["entry"][-1]["data"]
            for level, place, value in merkle.append(self._size, leaf_hash(data), lambda at, _: self._edge[at]):
                self._edge[level] = value
                nodes.append({"level": level, "position": place, "hash": value})
            self._size += 1
        rows["account"] = list({tuple(one.values())[:3]: one for one in rows["account"]}.values())
        note = sign(Checkpoint(ORIGIN, self._size, nodes[-1]["hash"]), LOG_KEY)
        cursor = connection.cursor()
        cursor.execute("BEGIN" if self._postgres else "BEGIN IMMEDIATE")
        for table, values in (
            *rows.items(),
            ("tree_node", nodes),
            ("checkpoint", [{"tree_size": self._size, "note": note}]),
        ):
            if values:
                cursor.executemany(self._statement(table, values[0]), [tuple(one.values()) for one in values])
        cursor.execute("COMMIT")

    def _statement(self, table: str, row: dict[str, Any]) -> str:
        marks = ", ".join(["%s" if self._postgres else "?"] * len(row))
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"  # noqa: S608 - our own tables
        if table in PUT:
            changes = ", ".join(f"{name} = excluded.{name}" for name in row)
            statement += f" ON CONFLICT {KEYS[table]} DO UPDATE SET {changes}"
        return statement


def _written(world: StoredWorld, sent: Submission) -> Rows:
    """The rows of what the book wrote for one command."""
    (outcome,) = world.submit(sent)
    assert not outcome.code.refused, outcome
    chosen = {
        "entry": f"position = {outcome.index}",
        "signing_key": f"entered = {outcome.index}",
        "charge": "id = 'sample'",
        "account": "1 = 1",
    }
    engine = engine_of(world.url, writes=False)
    with engine.begin() as connection:
        rows: Rows = {
            table: [dict(one) for one in connection.exec_driver_sql(f"SELECT * FROM {table} WHERE {where}").mappings()]  # noqa: S608
            for table, where in chosen.items()
        }
    engine.dispose()
    return rows


def _renamed(table: str, row: dict[str, Any], name: str, position: int) -> dict[str, Any]:
    match table:
        case "entry":
            return {**row, "position": position, "id": f"{row['kind']}-{name}"}
        case "signing_key":
            # As long as a thumbprint, and like those in no order: each comes to another page of the index.
            return {**row, "key_id": f"{name[::-1]:-<43}", "entered": position}
        case "charge":
            return {**row, "id": name, "entered": position}
        case _:
            return row
