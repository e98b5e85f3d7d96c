"""The table of the book's speed, one JSON object a row: ``python -m tests.bench.book_table``, or ``make bench-book``.

Each row is timed beside its peer in the same run, in turns. A round takes a second or more, so that what a book does
now and then (its write-ahead log goes into the file, its state is stated) is part of each. Sizes are options, so that
a short form runs in a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

from ledger.audit.replay import verify_book
from ledger.book.book import Submission
from ledger.book.state.settled_comparison import PARTS
from ledger.book.state.snapshot_file import EVERY_CLOSING
from ledger.commands.apply import apply
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide_unsigned, verify_signer
from ledger.commands.entry import Entry
from ledger.commands.registry import read_command
from ledger.domain.memory_state import MemoryState
from ledger.log import merkle
from ledger.log.checkpoint import sign
from ledger.store.engine import engine_of, url_of
from ledger.store.snapshot import Snapshot
from ledger.verifier import Checkpoint, leaf_hash
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests import postgres
from tests.bench.book_rows import Condition, in_turns, report, seconds
from tests.bench.floor import Floor
from tests.bench.grown import ENDLESS, TINY, grown
from tests.bench.pipeline_parts import Pipeline
from tests.bench.range_charges import range_charges
from tests.bench.test_doors import CLIENTS, charge, packed, served, today
from tests.bench.wire import send_all
from tests.factories.memory import LOG_PUBLIC, MemoryWorld, entry_of
from tests.factories.people import BANK_A, LOG, LOG_KEY, ORIGIN, CleanRoom
from tests.factories.service import open_world as open_service
from tests.factories.stored import StoredWorld, no_step, open_world

NAMES: Final = count()
Pair = tuple[Submission, Submission]


def made(world: StoredWorld, how_many: int) -> list[Pair]:
    """Signed pairs of a charge and its settlement."""
    names = [f"{os.getpid()}-{next(NAMES)}" for _ in range(how_many)]
    return [(world.charge(name, run=TINY), world.settle(name, 1)) for name in names]


def send(world: StoredWorld, pair: Pair) -> None:
    """A charge, and when it is durable its settlement."""
    for sent, word in zip(pair, ("pending", "posted"), strict=True):
        (outcome,) = world.submit(sent)
        assert outcome.code.word == word, outcome


@contextmanager
def both(engine: str) -> Iterator[tuple[StoredWorld, Floor]]:
    """A book, and the raw driver on another of the same rows."""
    with (
        TemporaryDirectory() as one,
        TemporaryDirectory() as two,
        open_world(Path(two), engine) as other,
        open_world(Path(one), engine) as world,
    ):
        floor = Floor(other)
        try:
            yield world, floor
        finally:
            floor.close()


def fresh(how_many: int) -> list[str]:
    """Names for the raw driver."""
    return [f"raw-{next(NAMES)}" for _ in range(how_many)]


def pairs(engine: str, clients: int, requested: argparse.Namespace, condition: Condition) -> None:
    """Clients in threads."""
    how_many = max(clients, 8) * requested.pairs
    with both(engine) as (world, floor), ThreadPoolExecutor(clients) as pool:

        def ours() -> Callable[[], object]:
            ready = made(world, how_many)
            return lambda: [*pool.map(lambda pair: send(world, pair), ready)]

        def raw() -> Callable[[], object]:
            names = fresh(how_many)
            return lambda: [*pool.map(floor.pair, names)]

        report(f"pairs, {engine}, {clients} clients", in_turns(requested.rounds, ours, raw), condition)


def two_processes(requested: argparse.Namespace) -> None:
    """As many clients in two processes that write one book."""
    how_many = CLIENTS * requested.pairs
    children: list[subprocess.Popen[str]] = []
    with both("postgresql") as (world, floor), ThreadPoolExecutor(CLIENTS) as pool:

        def ours() -> Callable[[], object]:
            for one in children:
                one.wait()
            command = [
                sys.executable,
                "-m",
                "tests.bench.book_table",
                "--client",
                world.url,
                "--pairs",
                str(requested.pairs),
            ]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            children.append(child)
            assert child.stdin is not None
            assert child.stdout is not None
            go, reported = child.stdin, child.stdout
            assert reported.readline() == "ready\n"
            ready = made(world, how_many // 2)

            def run() -> None:
                go.write("go\n")
                go.flush()
                for _ in pool.map(lambda pair: send(world, pair), ready):
                    pass
                assert reported.readline() == "done\n"

            return run

        def raw() -> Callable[[], object]:
            names = fresh(how_many)
            return lambda: [*pool.map(floor.pair, names)]

        ratios = in_turns(requested.rounds, ours, raw)
        report("pairs, postgresql, 32 clients in two processes", ratios, Condition(least=0.3))


def client(url: str, how_many: int) -> None:
    """The second process."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(CLIENTS // 2) as pool:
        world = StoredWorld(Path(folder), url)
        # A process that has just begun computes the price first.
        send(world, *made(world, 1))
        ready = made(world, how_many)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for _ in pool.map(lambda pair: send(world, pair), ready):
            pass
        sys.stdout.write("done\n")
        sys.stdout.flush()
        world.book.close()


def coroutines(requested: argparse.Namespace) -> None:
    """Clients that are coroutines, against the floor of as many threads."""
    waits: list[float] = []

    async def one(world: StoredWorld, mine: list[Pair]) -> None:
        for pair in mine:
            start = perf_counter()
            for sent in pair:
                (outcome,) = await world.book.submit_async([sent])
                assert not outcome.code.refused, outcome
            waits.append(perf_counter() - start)

    async def all_of(world: StoredWorld, ready: list[Pair]) -> None:
        await asyncio.gather(*(one(world, ready[place::CLIENTS]) for place in range(CLIENTS)))

    how_many = CLIENTS * requested.pairs
    with both("sqlite") as (world, floor), ThreadPoolExecutor(CLIENTS) as pool:

        def ours() -> Callable[[], object]:
            ready = made(world, how_many)
            return lambda: asyncio.run(all_of(world, ready))

        def raw() -> Callable[[], object]:
            names = fresh(how_many)
            return lambda: [*pool.map(floor.pair, names)]

        report("pairs, sqlite, 32 coroutines", in_turns(requested.rounds, ours, raw), Condition(least=0.8))
    # Those of the first round, which warms up, are left out.
    cuts = statistics.quantiles(waits[how_many:], n=100)
    report("pairs, sqlite, 32 coroutines: p50", [cuts[49] * 1e3], unit="ms")
    report("pairs, sqlite, 32 coroutines: p99", [cuts[98] / cuts[49]], Condition(most=5), unit="of p50")


def calls(requested: argparse.Namespace) -> None:
    """Calls of thousands of charges, then of as many settlements."""
    with both("sqlite") as (world, floor):

        def ours() -> Callable[[], object]:
            ready = made(world, requested.batch)
            return lambda: [world.submit(*phase) for phase in zip(*ready, strict=True)]

        def raw() -> Callable[[], object]:
            names = fresh(requested.batch)

            def run() -> None:
                for phase in (0, 1):
                    floor.batch(names, phase)

            return run

        report(
            f"pairs, sqlite, calls of {requested.batch}", in_turns(requested.rounds, ours, raw), Condition(least=0.4)
        )


def over_http(requested: argparse.Namespace) -> None:
    """Signed charges on 32 connections, against 32 coroutines in process."""
    took: list[float] = []
    how_many = CLIENTS * requested.pairs
    with (
        TemporaryDirectory() as far_folder,
        TemporaryDirectory() as near_folder,
        served(Path(far_folder)) as (far, server),
        # Its book states its state, as that of the service does.
        open_service(Path(near_folder), clock=today(), statements=True) as near,
    ):
        near.contract = near.found_service(runs_max=1_000_000)
        names = (f"charge-{number}" for number in count())

        def http() -> Callable[[], object]:
            token = far.everybody.shown(BANK_A)
            ready = (packed(far, "charge", *charge(far, next(names), CleanRoom()), token) for _ in range(how_many))
            plans = [list(row) for row in zip(*[ready] * requested.pairs, strict=True)]

            def run() -> None:
                heard = send_all(server.url, plans)
                assert heard.statuses == {201: how_many}
                took.extend(heard.seconds)

            return run

        async def one(mine: list[Submission]) -> None:
            for sent in mine:
                (outcome,) = await near.book.submit_async([sent])
                assert outcome.code.word == "pending", outcome

        async def all_of(ready: list[Submission]) -> None:
            await asyncio.gather(*(one(ready[place::CLIENTS]) for place in range(CLIENTS)))

        def inside() -> Callable[[], object]:
            ready = [Submission(*charge(near, next(names), CleanRoom())) for _ in range(how_many)]
            return lambda: asyncio.run(all_of(ready))

        report(
            "signed charges over HTTP, 32 connections",
            in_turns(requested.rounds, http, inside),
            Condition(least=0.4),
            unit="of 32 coroutines in process",
        )
    report("signed charges over HTTP: p99", [statistics.quantiles(took[how_many:], n=100)[98] * 1e3], unit="ms")


def straight(entries: list[bytes], documents: dict[str, bytes], *, signatures: bool) -> None:
    """Every entry read, verified, decided and written again one after the other: nothing is kept, nothing is shared."""
    state = MemoryState(documents=documents)
    for index, data in enumerate(entries):
        entry = Entry.parse(data)
        pending = PendingCommand(entry.command, entry.command_body, entry.command.to_bytes(), entry.signature)
        if signatures:
            verify_signer(state, pending, LOG_PUBLIC.x)
        decided = decide_unsigned(state, pending, entry.time, index, gate)
        assert entry_of(pending, decided, entry.time).to_bytes() == data
        apply(state, entry, index)


def verification(requested: argparse.Namespace) -> None:
    """``epsilon verify`` with every policy decided again, against the straight path of one process."""
    path = grown(requested.verified)
    engine = engine_of(url_of(path), writes=False)
    with engine.begin() as connection:
        book = Snapshot(connection)
        entries = [book.entry(index) for index in range(book.size)]
        rows = connection.exec_driver_sql("SELECT digest, data FROM document").all()
    engine.dispose()
    documents = {digest: bytes(data) for digest, data in rows}
    for signatures, least in ((False, 3.0), (True, 2.0)):

        def ours(signed: bool = signatures) -> Callable[[], object]:  # noqa: FBT001 - bound to this turn
            return lambda: verify_book(url_of(path), LOG, no_step, gate=gate, signatures=signed)

        def peer(signed: bool = signatures) -> Callable[[], object]:  # noqa: FBT001 - bound to this turn
            return lambda: straight(entries, documents, signatures=signed)

        name = f"verify {len(entries)} entries, everything decided, {'all' if signatures else 'no'} signatures"
        report(name, in_turns(requested.rounds, ours, peer), Condition(least=least), unit="of the straight path")


def openings(requested: argparse.Namespace) -> None:
    """Processor time and memory of opening a book, by the length of the log, with a snapshot and without."""
    for entries in requested.entries:
        long = entries >= 10**6
        with TemporaryDirectory() as folder:
            shutil.copy(grown(entries), Path(folder) / "book.sqlite")
            before, start = _resident(), process_time()
            world = StoredWorld(Path(folder))
            took, most = process_time() - start, Condition(most=60 if long else None)
            report(f"opening {entries} entries without a snapshot", [took], most, unit="s of processor time")
            report(f"memory of an open book of {entries} entries", [_resident() - before], unit="MiB")
            world.book.close()
            stating = partial(world.open, statements=True, snapshot=Path(folder) / "snapshot")
            stating().close()
            if entries >= EVERY_CLOSING:
                start = process_time()
                book = stating()
                took, most = process_time() - start, Condition(most=5 if long else None)
                report(f"opening {entries} entries with a snapshot", [took], most, unit="s of processor time")
                book.close()


def grown_books(asked: argparse.Namespace) -> None:
    """The cost of a charge by the length of the log, in turns, once the rows of each book were compared."""
    contract = c.digest(c.dump(ENDLESS))
    costs: dict[int, list[float]] = {entries: [] for entries in asked.entries}
    with ExitStack() as stack:
        worlds: dict[int, StoredWorld] = {}
        for entries in asked.entries:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            shutil.copy(grown(entries), folder / "book.sqlite")
            worlds[entries] = world = StoredWorld(folder)
            stack.callback(world.book.close)
            for _ in range(PARTS):
                world.book.compare_rows()
        for _ in range(asked.rounds * 3 + 1):
            for entries, world in worlds.items():
                ready = [world.charge(f"cost-{next(NAMES)}", run=TINY, contract=contract) for _ in range(128)]
                costs[entries].append(seconds(partial(world.submit, *ready)))
    first = statistics.median(costs[asked.entries[0]][1:])
    for entries, took_each in costs.items():
        ratios = [one / first for one in took_each[1:]]
        report(f"a charge after {entries} entries", ratios, Condition(most=1.2), f"of one after {asked.entries[0]}")


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def parts(requested: argparse.Namespace) -> None:
    """Microseconds of one command, by what they are spent on: of the core alone, one after the other, nothing kept."""
    world = MemoryWorld()
    world.found()
    sent = [world.charge(f"part-{number}", run=TINY) for number in range(requested.parts)]
    pending = [read_command(one.raw, one.signature) for one in sent]
    decided = [world.decide_pending(one) for one in pending]
    entries = [entry_of(one, found, world.clock()) for one, found in zip(pending, decided, strict=True)]
    data = [one.to_bytes() for one in entries]
    state = world.fork().state
    edge = dict.fromkeys(range(64), bytes(32))
    later = [read_command(*_raw(world, number)) for number in range(requested.parts)]
    spent: dict[str, Callable[[], object]] = {
        "read the command": lambda: [read_command(one.raw, one.signature) for one in sent],
        "verify its signature": lambda: [verify_signer(state, one, LOG_PUBLIC.x) for one in pending],
        "decide": lambda: [decide_unsigned(state, one, world.clock(), world.index, gate) for one in later],
        "write the entry": lambda: [one.to_bytes() for one in entries],
        "read the entry": lambda: [Entry.parse(one) for one in data],
        "hash the leaf, grow the tree": lambda: [
            merkle.append(place, leaf_hash(one), lambda at, _: edge[at]) for place, one in enumerate(data)
        ],
        "sign a checkpoint": lambda: [
            sign(Checkpoint(ORIGIN, place + 1, bytes(32)), LOG_KEY) for place in range(len(data))
        ],
    }
    for name, run in spent.items():
        times = [seconds(run) / requested.parts * 1e6 for _ in range(requested.rounds + 1)][1:]
        report(f"a charge: {name}", times, unit="µs")


def stages(requested: argparse.Namespace) -> None:
    """Microseconds of processor time of one command in the book's own pipeline, by stage."""
    with TemporaryDirectory() as folder, open_world(Path(folder)) as world:
        send(world, *made(world, 1))
        pipeline, found = Pipeline(world), dict[str, list[float]]()
        for _ in range(requested.rounds + 1):
            ready = made(world, requested.parts)
            for kind, phase in zip(("charge", "settlement"), zip(*ready, strict=True), strict=True):
                for stage, spent in pipeline.spent(phase).items():
                    found.setdefault(f"a {kind} in a batch: {stage}", []).append(spent)
        pipeline.close()
    for name, values in found.items():
        report(name, values[1:], unit="µs of processor time")


def _raw(world: MemoryWorld, number: int) -> tuple[bytes, str]:
    one = world.charge(f"later-{number}", run=TINY)
    return one.raw, one.signature


ROWS: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "threads": lambda requested: pairs("sqlite", CLIENTS, requested, Condition(least=0.5)),
    "one": lambda requested: pairs("sqlite", 1, requested, Condition(least=0.5)),
    "coroutines": coroutines,
    "calls": calls,
    "postgresql": lambda requested: pairs("postgresql", CLIENTS, requested, Condition(least=0.3)),
    "processes": two_processes,
    "http": over_http,
    "verify": verification,
    "opening": openings,
    "grown": grown_books,
    "parts": parts,
    "ranges": range_charges,
    "stages": stages,
}


def main() -> None:
    """Print the rows that were asked for."""
    parser = argparse.ArgumentParser(prog="book_table", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="which rows; all of them if none is named")
    parser.add_argument("--rounds", type=int, default=5, help="how often both are timed")
    parser.add_argument("--pairs", type=int, default=100, help="pairs of each client in a round of a second or more")
    parser.add_argument("--batch", type=int, default=8_000, help="commands of one large call")
    parser.add_argument("--verified", type=int, default=20_000, help="entries of the book that is verified")
    parser.add_argument("--entries", default="1000,100000,1000000", help="lengths of the logs that are opened")
    parser.add_argument("--parts", type=int, default=500, help="commands by which the parts are timed")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.client:
        client(requested.client, CLIENTS * requested.pairs // 2)
        return
    requested.entries = [int(one) for one in requested.entries.split(",")]
    if postgres.NAMED not in os.environ:
        # A server of its own, which waits for the disk; it ends after what the tests keep on it.
        server = postgres.Server(max_connections="200")
        atexit.register(server.close)
        os.environ[postgres.NAMED] = server.dsn
    for name in requested.rows or ROWS:
        ROWS[name](requested)


if __name__ == "__main__":
    main()
