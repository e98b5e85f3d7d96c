"""The current state in a database, for readers: each table is a read-through cache; and the check of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, text

from ledger.domain.charge_record import Charge
from ledger.domain.facts import Account, OpeningOrder, SigningKey, Span
from ledger.domain.memory_state import MemoryState, sum_exposures
from ledger.domain.organisation_graph import NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.log.verification_findings import VerificationFailed
from ledger.mechanisms.loss import Loss
from ledger.store import tables as t
from ledger.store.documents import StoredDocuments
from ledger.store.engine import Executor
from ledger.store.projection_table import ProjectionTable, put_rows, rows_of
from ledger.store.row_mapping import TableMapping
from ledger.wire.malformed import Malformed

PROJECTIONS: Final[dict[str, TableMapping[Any, Any]]] = {
    "organisations": t.ORGANISATIONS,
    "keys": t.KEYS,
    "key_terms": t.KEY_TERMS,
    "recovery_quorums": t.RECOVERY_QUORUMS,
    "extended_quorums": t.EXTENDED_QUORUMS,
    "policies": t.POLICIES,
    "datasets": t.DATASETS,
    "streams": t.STREAMS,
    "audits": t.AUDITS,
    "partitions": t.PARTITIONS,
    "contracts": t.CONTRACTS,
    "contract_heads": t.CONTRACT_HEADS,
    "charges": t.CHARGES,
    "accounts": t.ACCOUNTS,
    "forgiven": t.FORGIVEN,
    "nodes": t.NODES,
}
"""The tables that hold a state, by its attribute: projections of the entries."""


class DatabaseState:
    """The facts as one transaction sees them. See :class:`ledger.domain.facts.Facts`."""

    def __init__(self, connection: Executor) -> None:
        """Read through ``connection``."""
        self.connection = connection
        self.documents = ProjectionTable(connection, t.DOCUMENTS)
        self.organisations = ProjectionTable(connection, t.ORGANISATIONS)
        self.keys = ProjectionTable(connection, t.KEYS)
        self.key_terms = ProjectionTable(connection, t.KEY_TERMS)
        self.recovery_quorums = ProjectionTable(connection, t.RECOVERY_QUORUMS)
        self.extended_quorums = ProjectionTable(connection, t.EXTENDED_QUORUMS)
        self.policies = ProjectionTable(connection, t.POLICIES)
        self.datasets = ProjectionTable(connection, t.DATASETS)
        self.streams = ProjectionTable(connection, t.STREAMS)
        self.audits = ProjectionTable(connection, t.AUDITS)
        self.partitions = ProjectionTable(connection, t.PARTITIONS)
        self.contracts = ProjectionTable(connection, t.CONTRACTS)
        self.contract_heads = ProjectionTable(connection, t.CONTRACT_HEADS)
        self.charges = ProjectionTable(connection, t.CHARGES)
        self.accounts = ProjectionTable(connection, t.ACCOUNTS)
        self.forgiven = ProjectionTable(connection, t.FORGIVEN)
        self.nodes = ProjectionTable(connection, t.NODES)
        self._orders: dict[str, OpeningOrder] = {}

    @property
    def publication(self) -> int | None:
        """The newest node of what was made public."""
        table = t.NODES.table
        chosen = select(func.max(table.c.position)).where(table.c.kind == NodeKind.PUBLIC.value)
        return self.connection.execute(chosen).scalar()

    def accounts_of(self, holder: str) -> list[Account]:
        """Every account of one holder, by partition."""
        return [account for _, account in sorted(self.accounts.fetch(t.ACCOUNTS.table.c.holder == holder).items())]

    def opening_order(self, dataset: str) -> OpeningOrder:
        """The partitions of a dataset in order of opening."""
        if dataset not in self._orders:
            table = t.PARTITIONS.table
            provider, _, name = dataset.rpartition("/")
            of_dataset = table.c.provider == provider, table.c.dataset == name
            # A run is on open ones; those that retired grow in number for ever.
            self.partitions.fetch(*of_dataset, table.c.retired == 0)
            chosen = select(table.c.ref).where(*of_dataset).order_by(table.c.entered)
            self._orders[dataset] = OpeningOrder([str(ref) for ref in self.connection.execute(chosen).scalars()])
        return self._orders[dataset]

    def fetch_partitions(self, refs: Sequence[str]) -> None:
        """Read partitions, with their datasets, streams and policies, in four steps."""
        self.partitions.fetch_many(refs)
        found = [partition for ref in refs if (partition := self.partitions.get(ref)) is not None]
        datasets = [*{(partition.provider, partition.dataset) for partition in found}]
        self.datasets.fetch_keys(datasets)
        self.streams.fetch_keys(datasets)
        self.policies.fetch_keys([*{dataset.domain for key in datasets if (dataset := self.datasets.get(key))}])

    def fetch_accounts(self, partitions: Sequence[str], holders: Sequence[str]) -> None:
        """Read accounts, and what was forgiven of them, in one step."""
        for held, table in ((self.accounts, t.ACCOUNTS.table), (self.forgiven, t.FORGIVEN.table)):
            held.fetch_many([(ref, who) for who in holders for ref in partitions], table.c.holder.in_(holders))

    def keys_of(self, did: str) -> list[SigningKey]:
        """Every key that was ever an organisation's, in the order of their entries."""
        table = t.KEYS.table
        found = self.keys.where(table.c.owner == did, table.c.charge.is_(None))
        return sorted(found, key=lambda one: one.index)

    def pending_charges(self) -> list[Charge]:
        """The charges that are not settled."""
        return self.charges.where(t.CHARGES.table.c.state == ChargeState.PENDING.value)

    def runs(self, spans: Iterable[Span]) -> int:
        """How many charges there are in these spans, which do not overlap."""
        return self.charges.count_any(map(_within, spans))

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss of the charges in these spans, which do not overlap."""
        table = t.CHARGES.table
        # All that a loss is made of: the price, the steps that count, and groups of partitions, which few runs have.
        several = case((table.c.notices.contains('"groups"'), table.c.notices), else_="")
        same = table.c.partitions, table.c.prices, table.c.state, table.c.steps, table.c.steps_posted, several
        return sum_exposures(self.charges.alike_any(map(_within, spans), same))

    def latest(self, author: int, most: int) -> list[Charge]:
        """The newest charges authored at a node, newest first."""
        table = t.CHARGES.table
        newest = select(table.c.id).where(table.c.author == author).order_by(table.c.entered.desc()).limit(most)
        return sorted(self.charges.where(table.c.id.in_(newest)), key=lambda one: -one.index)

    def holders(self, ref: str, most: int) -> list[str]:
        """The first so many holders of accounts of a partition, in order."""
        table = t.ACCOUNTS.table
        chosen = select(table.c.holder).where(table.c.partition == ref).distinct().order_by(table.c.holder).limit(most)
        return [str(holder) for (holder,) in self.connection.execute(chosen)]

    def holders_of_provider(self, provider: str, most: int) -> list[str]:
        """The first so many holders of accounts of a provider's partitions, in order."""
        # References are in the order of code points, where the slash comes right before the zero.
        partition = t.ACCOUNTS.table.c.partition
        within = (partition >= f"{provider}/", partition < f"{provider}0")
        holder = t.ACCOUNTS.table.c.holder
        chosen = select(holder).where(*within).distinct().order_by(holder).limit(most)
        return [str(one) for one in self.connection.execute(chosen).scalars()]

    def begun(self, ref: str, spans: Iterable[Span], most: int) -> list[Charge]:
        """The first so many charges in these spans to a partition that were not voided."""
        table, found = t.CHARGES.table, list[Charge]()
        # A list of references is stored as JSON, in which no reference has a character that JSON escapes.
        wanted = (
            table.c.partitions.contains(json.dumps(ref), autoescape=True),
            table.c.state != ChargeState.VOIDED.value,
        )
        for span in spans:
            ids = select(table.c.id).where(_within(span), *wanted).order_by(table.c.entered).limit(most - len(found))
            found += sorted(self.charges.where(table.c.id.in_(ids)), key=lambda one: one.index)
            if len(found) == most:
                break
        return found

    def newest_on(self, ref: str, most: int) -> list[Charge]:
        """The newest charges to a partition, oldest of them first."""
        table = t.CHARGES.table
        wanted = table.c.partitions.contains(json.dumps(ref), autoescape=True)
        newest = select(table.c.id).where(wanted).order_by(table.c.entered.desc()).limit(most)
        return sorted(self.charges.where(table.c.id.in_(newest)), key=lambda one: one.index)

    def runs_posted(self, dataset: str) -> int:
        """How many runs on a dataset (``provider/dataset``) were posted."""
        table = t.CHARGES.table
        beginning = json.dumps(f"{dataset}/")[:-1]
        wanted = table.c.partitions.contains(beginning, autoescape=True), table.c.state == ChargeState.POSTED.value
        return int(self.connection.execute(select(func.count()).select_from(table).where(*wanted)).scalar_one())

    def due(self, now: int, most: int) -> list[str]:
        """The ids of pending charges whose deadline has passed, oldest first."""
        table = t.CHARGES.table
        chosen = (
            select(table.c.id)
            .where(table.c.state == ChargeState.PENDING.value, table.c.deadline < now)
            .order_by(table.c.deadline, table.c.id)
            .limit(most)
        )
        return [str(one[0]) for one in self.connection.execute(chosen)]

    def next_deadline(self) -> int | None:
        """The earliest deadline (ms) of a pending charge; None if none is pending."""
        table = t.CHARGES.table
        chosen = select(func.min(table.c.deadline)).where(table.c.state == ChargeState.PENDING.value)
        found = self.connection.execute(chosen).scalar()
        return None if found is None else int(found)


def write_state(connection: Connection, state: MemoryState) -> None:
    """Write every row of a state into a database that has none."""
    for name, mapping in PROJECTIONS.items():
        put_rows(connection, mapping.table, rows_of(mapping, getattr(state, name).items()), replaces=True)


def _within(span: Span) -> ColumnElement[bool]:
    table = t.CHARGES.table
    return and_(table.c.author == span.author, table.c.entered >= span.first, table.c.entered < span.before)


def check_rows(book: DatabaseState, state: MemoryState) -> None:
    """Every stored row is what the entries make it, and none is missing. Raises: VerificationFailed."""
    revision = str(book.connection.execute(_REVISION).scalar())
    for name in PROJECTIONS:
        if revision < t.PROJECTED_SINCE.get(name, ""):
            if getattr(state, name):
                raise VerificationFailed(None, f"{name}: the book's schema {revision} has no rows of them")
            continue
        _check_table(name, getattr(book, name), getattr(state, name))


Parts = Mapping[str, Mapping[Any, Any]]
"""A state by part, as ``PROJECTIONS`` names them."""


def _go_on() -> None:
    """Compare the next rows without a pause."""


def check_open_rows(book: DatabaseState, parts: Parts, pause: Callable[[], None] = _go_on) -> None:
    """The same of all rows but those of settled charges, and of the keys that are bound to them.

    Args:
        parts: of charges those that are pending, of keys those of organisations and of the clean rooms of pending
            charges.
        pause: called after every few rows.

    Raises:
        VerificationFailed: naming the first row that differs.
    """
    charge, key = t.CHARGES.table.c, t.KEYS.table.c
    pending = charge.state == ChargeState.PENDING.value
    bound_to_pending = key.charge.in_(select(charge.id).where(pending))
    only: dict[str, Any] = {"charges": (pending,), "keys": (or_(key.charge.is_(None), bound_to_pending),)}
    # Which keys belong to pending charges is read from their rows, so these come first.
    for name in sorted(PROJECTIONS, key=lambda name: name != "charges"):
        _check_table(name, getattr(book, name), parts[name], *only.get(name, ()), pause=pause)


def check_documents(book: DatabaseState, parts: Parts, pause: Callable[[], None] = _go_on) -> None:
    """The documents that policies, datasets, streams and contracts name are stored, with the bytes of their digests.

    Raises:
        VerificationFailed: naming the first that is not.
    """
    versions = (one.document for part in ("policies", "streams") for every in parts[part].values() for one in every)
    offers = (one for found in parts["datasets"].values() for one in (found.document, found.recommendation) if one)
    documents = StoredDocuments(book.connection)
    for count, name in enumerate(dict.fromkeys([*versions, *offers, *parts["contracts"]])):
        if not count % _TOGETHER:
            pause()
        try:
            documents[name]
        except (LookupError, Malformed) as error:
            raise VerificationFailed(None, f"document {name}: is missing or was changed: {error}") from None


def check_rows_named(book: DatabaseState, name: str, made: Mapping[str, Any]) -> None:
    """The rows of these keys in one table are what the entries make them. Raises: VerificationFailed."""
    rows: ProjectionTable[Any, Any] = getattr(book, name)
    of_keys = PROJECTIONS[name].columns[0].in_(list(made))
    _check_table(name, rows, made, of_keys)


def count_rows(book: DatabaseState, name: str) -> int:
    """How many rows one table has."""
    return int(book.connection.execute(select(func.count()).select_from(PROJECTIONS[name].table)).scalar_one())


def _check_table(
    name: str,
    rows: ProjectionTable[Any, Any],
    made: Mapping[Any, Any],
    *only: Any,  # noqa: ANN401 - SQLAlchemy's own types
    pause: Callable[[], None] = _go_on,
) -> None:
    count, last = 0, None
    try:
        for place, value in rows.stored(*only):
            # Rows come by their keys: one that is there twice would hide one that is gone.
            if place == last:
                raise VerificationFailed(None, f"{name}: the row of {place} is there twice")
            count, last = count + 1, place
            if not count % _TOGETHER:
                pause()
            if made.get(place) != value:
                row = rows.row_that_differs(place, value, made.get(place))
                raise VerificationFailed(None, f"{name}: the row of {row} is not what the entries make it")
    except ROW_FAULTS:
        _find_unreadable(name, rows)
        raise
    if count != len(made):
        place = min(made.keys() - {place for place, _ in rows.stored(*only)})
        row = rows.row_that_differs(place, None, made[place])
        what = "is" if place in rows else "is missing: it is"
        raise VerificationFailed(None, f"{name}: the row of {row} {what} not what the entries make it")


def _find_unreadable(name: str, rows: Any) -> None:  # noqa: ANN401 - of any table
    for place in rows:
        try:
            rows[place]
        except ROW_FAULTS as fault:
            raise VerificationFailed(None, f"{name}: the row of {place} cannot be read: {fault}") from None


_REVISION: Final = text("SELECT version_num FROM alembic_version")
_TOGETHER: Final = 256
"""Rows that are compared without a pause."""
ROW_FAULTS: Final = (LookupError, AssertionError, ValueError, ArithmeticError, TypeError, AttributeError)
"""What a row that holds no value of its table may raise."""
