"""Readers of the fields of a job's file: each from a value, the field's name and the folder of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from client.service.detached_signatures import digest_of
from ledger.domain.charge_record import EVERYONE
from ledger.domain.command import parse_ref
from ledger.domain.range_names import is_range, range_named
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CHARGES_MAX: Final = 16
DEVICES_MAX: Final = 64
"""Processes that train one model together, each on a device."""
_TREES: Final = frozenset({"boosted_trees", "gradient_boosting", "lightgbm", "train_xgb", "xgb", "xgboost"})
_NO_TREES: Final = (
    "the clean room has no engine for boosted trees. It would need splits and leaf sums of proven sensitivity, noise"
    " from a cryptographic generator, public bounds of features and a charge for each tree"
)
Table = TypeVar("Table", bound="DataclassInstance")
Reader: TypeAlias = Callable[[Any, str, Path], Any]
"""From a value, its field and the folder of the file to what is read. Raises: Malformed."""


def read_by(reader: Reader) -> Mapping[str, Reader]:
    """The metadata of a dataclass's field that :func:`read_fields` reads."""
    return {"reader": reader}


def plain(read: Callable[..., object], *bounds: object) -> Mapping[str, Reader]:
    """The same for a reader of a value that names no file."""
    return read_by(lambda value, where, _: read(value, where, *bounds))


def path_in(value: object, where: str, folder: Path) -> Path:
    """A path relative to a folder. Raises: Malformed."""
    text = c.string(value, where)
    if "\0" in text:
        raise Malformed(where, "is no path: it holds a null character")
    return folder / text


def read_fields(kind: type[Table], value: object, where: str, folder: Path, /, **unread: object) -> Table:
    """A dataclass from a table of its fields with readers, of which those without a default must be there.

    Raises:
        Malformed: naming the field.
    """
    readers = {field.name: field for field in fields(kind) if "reader" in field.metadata}
    required = tuple(name for name, reader in readers.items() if reader.default is MISSING)
    members = c.fields(value, where, required, tuple(readers))
    own = {name: f"{where}.{name}" if where else name for name in members}
    return kind(**{name: readers[name].metadata["reader"](members[name], own[name], folder) for name in own}, **unread)


def read_data(value: object, where: str, folder: Path) -> dict[str, Path]:
    """The file of each partition or range, by its name. Raises: Malformed."""
    if not isinstance(value, dict) or not value:
        raise Malformed(where, "must name the file of at least one partition")
    return {
        range_named(ref, where)[0] if is_range(ref) else parse_ref(ref, where): path_in(file, f"{where}.{ref}", folder)
        for ref, file in value.items()
    }


def read_plan(value: object, where: str) -> RunPlan:
    """A plan. Raises: Malformed."""
    try:
        return parse_plan(value)
    except Malformed as error:
        raise error.under(where) from None


def read_contract(value: object, where: str, folder: Path) -> str:
    """A contract's digest, by itself or of its file. Raises: Malformed."""
    text = c.string(value, where)
    path = path_in(value, where, folder)
    if path.is_file():
        return digest_of(str(path))
    try:
        return c.sha256(text, where)
    except Malformed:
        raise Malformed(where, "is neither a contract's file nor its SHA-256 digest") from None


def read_model(value: object, where: str, folder: Path) -> str:
    """The name of a model, or where a function that makes one is. Raises: Malformed."""
    name = c.string(value, where, 200)
    if name.casefold() in _TREES:
        raise Malformed(where, f"is {name}: {_NO_TREES}")
    if ":" in name:
        path_in(name.rpartition(":")[0], where, folder)
    return name


def read_several(read: Callable[[object, str], str], value: object, where: str) -> list[str]:
    """A list whose items one reader reads. Raises: Malformed."""
    return [read(string, f"{where}[{place}]") for place, string in enumerate(c.strings(value, where, CHARGES_MAX))]


def read_recipients(value: object, where: str) -> list[str] | str:
    """The organisations that get the model, or everyone. Raises: Malformed."""
    return EVERYONE if value == EVERYONE else read_several(c.did, value, where)
