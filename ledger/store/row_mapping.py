"""Rows into values and back, one pair of functions for each projection of the entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from ledger.domain.facts import Account, Charge, Contract, Dataset, Organisation, Partition, PolicyVersion, SigningKey
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss, Segment
from ledger.store.table_mapping import Fields
from ledger.transitions.apply_charges import read_prices
from ledger.wire.exact_numbers import format_number, parse_number


def organisation_of(rows: list[Fields]) -> Organisation:
    """An organisation, as its row has it."""
    (row,) = rows
    moves = tuple((time, node) for time, node in json.loads(row["moves"]))
    return Organisation(row["did"], row["name"], tuple(json.loads(row["roles"])), row["node"], row["entered"], moves)


def organisation_rows(key: str, value: Organisation) -> list[Fields]:
    """The row of an organisation."""
    row = {"did": key, "name": value.name, "node": value.node, "entered": value.index}
    return [{**row, "roles": json.dumps(value.roles), "moves": json.dumps(value.moves)}]


def key_of(rows: list[Fields]) -> SigningKey:
    """A key, as its row has it."""
    (row,) = rows
    return key_at([*row.values()])


def key_at(row: Sequence[Any]) -> SigningKey:
    """The same of the row's values, which come in the order of the key's own."""
    return SigningKey._make(row)


def key_rows(key: str, value: SigningKey) -> list[Fields]:
    """The row of a key."""
    return [{"key_id": key, "owner": value.owner, "x": value.x, "charge": value.charge, "entered": value.index}]


def policies_of(rows: list[Fields]) -> tuple[PolicyVersion, ...]:
    """The versions of one domain's policy, in order."""
    return tuple(PolicyVersion(**{("index" if k == "entered" else k): v for k, v in row.items()}) for row in rows)


def policy_rows(key: str, value: tuple[PolicyVersion, ...]) -> list[Fields]:
    """A row for each version."""
    return [
        {
            "domain": key,
            "version": one.version,
            "document": one.document,
            "issuer": one.issuer,
            "effective": one.effective,
            "entered": one.index,
        }
        for one in value
    ]


def dataset_of(rows: list[Fields]) -> Dataset:
    """A dataset, as its row has it."""
    (row,) = rows
    kept = ("provider", "dataset", "domain", "document", "recommendation")
    return Dataset(**{name: row[name] for name in kept}, index=row["entered"])


def dataset_rows(key: tuple[str, str], value: Dataset) -> list[Fields]:
    """The row of a dataset."""
    return [
        {
            "provider": key[0],
            "dataset": key[1],
            "domain": value.domain,
            "document": value.document,
            "entered": value.index,
            "recommendation": value.recommendation,
        }
    ]


def partition_of(rows: list[Fields]) -> Partition:
    """A partition, as its row has it."""
    (row,) = rows
    kept = (
        "ref",
        "provider",
        "dataset",
        "relation",
        "unit",
        "unit_records_max",
        "records",
        "data_key",
        "terms",
        "opened",
    )
    return Partition(
        **{name: row[name] for name in kept},
        epsilon=parse_number(row["epsilon"], "epsilon"),
        delta=parse_number(row["delta"], "delta"),
        retired=bool(row["retired"]),
        commitments=tuple(json.loads(row["commitments"])),
        index=row["entered"],
    )


def partition_rows(key: str, value: Partition) -> list[Fields]:
    """The row of a partition."""
    kept = ("provider", "dataset", "relation", "unit", "unit_records_max", "records", "data_key", "terms", "opened")
    return [
        {
            "ref": key,
            **{name: getattr(value, name) for name in kept},
            "epsilon": format_number(value.epsilon),
            "delta": format_number(value.delta),
            "retired": int(value.retired),
            "commitments": json.dumps(value.commitments),
            "entered": value.index,
        }
    ]


_CONTRACT = ("id", "version", "consumer", "consumer_node", "starts", "ends", "runs")


def contract_of(rows: list[Fields]) -> Contract:
    """A contract, as its row has it."""
    (row,) = rows
    return Contract(
        document=row["document"],
        **{name: row[name] for name in _CONTRACT},
        providers=tuple(json.loads(row["providers"])),
        index=row["entered"],
        revoked=bool(row["revoked"]),
    )


def contract_rows(key: str, value: Contract) -> list[Fields]:
    """The row of a contract."""
    return [
        {
            "document": key,
            **{name: getattr(value, name) for name in _CONTRACT},
            "providers": json.dumps(value.providers),
            "revoked": int(value.revoked),
            "entered": value.index,
        }
    ]


_CHARGE = (
    "contract",
    "actor",
    "author",
    "plan",
    "steps",
    "steps_posted",
    "key_id",
    "sealing",
    "key_release",
    "deadline",
    "pipeline",
)


def charge_of(rows: list[Fields]) -> Charge:
    """A charge, as its row has it."""
    (row,) = rows
    return charge_at([*row.values()])


def charge_at(row: Sequence[Any]) -> Charge:
    """The same of the row's values, which come in the order of the charge's own."""
    values = [*row]
    values[4], values[13] = _priced(values[4], values[13])
    values[8] = _STATES[values[8]]
    values[14], values[15] = _items(values[14]), _items(values[15])
    values[17] = _notices(values[17])
    return Charge._make(values)


# Most charges of a book name the same partitions at the same prices, and nobody else.
@lru_cache(maxsize=4_096)
def _priced(partitions: str, prices: str) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[Segment, ...]], ...]]:
    named, known = tuple(json.loads(partitions)), json.loads(prices)
    return named, tuple((ref, read_prices(known[ref])) for ref in named)


@lru_cache(maxsize=4_096)
def _items(listed: str) -> tuple[Any, ...]:
    return tuple(json.loads(listed))


@lru_cache(maxsize=4_096)
def _notices(listed: str) -> tuple[tuple[str, int], ...]:
    return tuple((model, time) for model, time in json.loads(listed))


_STATES: Final = {one.value: one for one in ChargeState}


def charge_rows(key: str, value: Charge) -> list[Fields]:
    """The row of a charge."""
    return [
        {
            "id": key,
            **{name: getattr(value, name) for name in _CHARGE},
            "partitions": json.dumps(value.partitions),
            "state": value.state.value,
            "prices": json.dumps({ref: [one.to_json() for one in segments] for ref, segments in value.prices}),
            "recipients": json.dumps(value.recipients),
            "base": json.dumps(value.base),
            "notices": json.dumps(value.notices),
            "entered": value.index,
        }
    ]


def account_of(rows: list[Fields]) -> Account:
    """An account, as its rows have it. Raises: ValueError, if one of its coordinates has no row or stands elsewhere."""
    if [row["coordinate"] for row in rows] != [*range(len(rows))]:
        raise ValueError(f"coordinates {[row['coordinate'] for row in rows]} are not 0 to {len(rows) - 1}")
    posted = Loss(tuple(row["posted"] for row in rows), tuple(row["posted_infinite"] for row in rows))
    pending = Loss(tuple(row["pending"] for row in rows), tuple(row["pending_infinite"] for row in rows))
    return Account(rows[0]["partition"], rows[0]["holder"], posted, pending)


def account_rows(key: tuple[str, str], value: Account) -> list[Fields]:
    """The rows of an account."""
    return [
        {
            "partition": key[0],
            "holder": key[1],
            "coordinate": place,
            "posted": value.posted.finite[place],
            "posted_infinite": value.posted.infinite[place],
            "pending": value.pending.finite[place],
            "pending_infinite": value.pending.infinite[place],
        }
        for place in range(len(value.posted.finite))
    ]


def forgiven_of(rows: list[Fields]) -> Loss:
    """What the last decree on an account let go, as its row has it."""
    return Loss.parse(json.loads(rows[0]["loss"]))


def forgiven_rows(key: tuple[str, str], value: Loss) -> list[Fields]:
    """The row of a decree on an account."""
    return [{"partition": key[0], "holder": key[1], "loss": json.dumps(value.to_json())}]
