"""The base of every document: a signed JSON object of one kind, read from JSON or YAML and checked for consistency."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, structs

from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.wire.exact_numbers import EPSILON_MAX
from ledger.wire.field_types import between, exact, read_custom
from ledger.wire.malformed import Malformed
from ledger.wire.read_errors import explain
from ledger.wire.records import AbstractRecordType, Record, type_info
from policy.checks.field_readers import VERSION_MAX, Timestamp
from policy.documents.document_text import read_document

T = TypeVar("T")
Epsilon = Annotated[Fraction, exact(most=EPSILON_MAX, positive=True)]
"""An ε greater than 0 that a budget may promise."""
Delta = Annotated[Fraction, exact(below=Fraction(1), positive=True)]
Share = Annotated[Fraction, exact(most=Fraction(1), positive=True)]
Time = Annotated[
    Timestamp, Meta(extra_json_schema={"pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"})
]
"""Read as Unix milliseconds."""
Version = Annotated[int, between(1, VERSION_MAX)]


class Document(Record, metaclass=AbstractRecordType, frozen=True, kw_only=True):
    """A document of one kind, version 1 of its form. An absent field has its default, which may also be stated.

    Attributes:
        bytes_max: the most bytes of a document.
    """

    v: Literal[1]
    bytes_max: ClassVar[int] = DOCUMENT_BYTES_MAX

    def __post_init__(self) -> None:
        """Check that the document is consistent. Raises: Malformed; Inconsistent, if it contradicts itself."""
        super().__post_init__()
        for name in self.__struct_fields__:
            if isinstance(value := getattr(self, name), Timestamp):
                structs.force_setattr(self, name, int(value))

    @property
    @abstractmethod
    def source(self) -> str:
        """Its name in decisions."""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read JSON or YAML and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        return read_document(data, cls.bytes_max, cls.of)

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a value and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        kind = cls.__struct_config__.tag
        if isinstance(value, dict) and value.get("kind") != kind:
            raise Malformed("kind", f"must be '{kind}'")
        return read_value(cls, value)


class Budget(Record, frozen=True):
    """The greatest budget that a partition may be opened with."""

    delta_max: Delta
    epsilon_max: Epsilon


def read_value(kind: type[T], value: Any, where: str = "") -> T:  # noqa: ANN401 - JSON
    """Read a value of a document in any encoding that people sign. Raises: Malformed."""
    key: Any = kind  # a type is hashable, which its annotation lacks
    explain(type_info(key), value, where)
    try:
        return msgspec.convert(value, kind, dec_hook=read_custom)
    except msgspec.ValidationError as error:
        raise Malformed(where, str(error)) from None
