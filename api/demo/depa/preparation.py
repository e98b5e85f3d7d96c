"""What each provider does on its own machine: choose columns, put tokens in place of phone numbers, seal."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from api.demo.depa.parties import Parties
from api.demo.depa.plans import BOUNDS, CATEGORIES, INPUTS, PHONE, TARGET
from api.demo.depa.raw_files import NAMES, PEOPLE, made_up
from api.keys.data_key_store import FileKeyStore
from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import SEALED, open_records, seal_dataset
from client.dataset_files.table_chunks import open_table
from ledger.files.atomic_file import create_file

PUBLIC_PEOPLE: Final = 200


def seal_tables(
    parties: Parties, keys: FileKeyStore, raw: dict[str, Path], folder: Path, partition: str
) -> dict[str, Path]:
    """Each provider's table, sealed for its partition, in the order of the join: references to files.

    Raises:
        Malformed: for a table with a person twice, a column missing, a value that is no number or was not declared, or
            more rows than declared. OSError.
    """
    tables = {}
    for name in NAMES:
        schema = table_schema(name)
        key = folder / f"{name}.key"
        create_file(key, keys.create(parties.tdps[name].did, f"{name}-{partition}").reveal())
        # The providers share the key of the tokens, and give it to no one else.
        records, ref = open_records(raw[name], schema, folder / "join.key"), parties.reference(name, partition)
        made = seal_dataset(records, ref, folder / name, key, None)
        tables[ref] = made.folder / SEALED
    return tables


def table_schema(name: str) -> RecordSchema:
    """How one provider's table is read, and what the provider declares of it."""
    target = (TARGET,) if name == NAMES[0] else ()
    bounds = {column: ColumnRule(bounds=pair) for column, pair in BOUNDS.items() if column in INPUTS[name]}
    coded = [column for column in (*INPUTS[name], *target) if column not in bounds]
    categories = {column: ColumnRule(categories=CATEGORIES.get(column, ("0", "1"))) for column in coded}
    declared = bounds | categories
    return RecordSchema(target, inputs=INPUTS[name], join=(PHONE[name],), declared=declared, records_max=PEOPLE)


def public_sample(folder: Path) -> Path:
    """Made-up people in the joined form: public, on which the model is tried before anything is charged."""
    made = folder / "made-up"
    made.mkdir()
    tables = {name: _numbers(path, name) for name, path in made_up(made, PUBLIC_PEOPLE, Random(1)).items()}  # noqa: S311 - no one's data
    phones = sorted(tables[NAMES[0]])
    inputs = [[number for name in NAMES for number in tables[name][phone][0]] for phone in phones]
    targets = [tables[NAMES[0]][phone][1] for phone in phones]
    path = folder / "public.npz"
    np.savez(path, inputs=np.array(inputs, dtype=np.float32), targets=np.array(targets, dtype=np.int64))
    return path


def _numbers(path: Path, name: str) -> dict[str, tuple[list[float], int]]:
    tables = {}
    for chunk in open_table(path).chunks():
        columns = chunk.columns
        for place, phone in enumerate(columns[PHONE[name]]):
            target = int(columns[TARGET][place]) if TARGET in columns else 0
            tables[str(phone)] = [float(columns[column][place]) for column in INPUTS[name]], target
    return tables
