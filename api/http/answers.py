"""Answers: typed records that a route returns, from which the JSON and the schema of an answer come."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from api.http.field_types import Cursor
from ledger.wire.records import Record

T = TypeVar("T")


class Answer(Record, frozen=True):
    """A JSON object of exactly its fields. Its docstring describes it in the OpenAPI document."""

    @classmethod
    def of(cls, source: object, **fields: Any) -> Self:  # noqa: ANN401 - each has the type of its field
        """The answer whose fields are attributes of ``source``, but for those that ``fields`` gives."""
        shared = {name: getattr(source, name) for name in cls.__struct_fields__ if name not in fields}
        return cls(**shared, **fields)


class Page(Answer, Generic[T], frozen=True):
    """A page of a list, and the cursor of the next one."""

    items: tuple[T, ...]
    next_cursor: Cursor | None
