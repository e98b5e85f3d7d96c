"""Parameters of paths and queries that are no text: integers, switches, and words of a closed list.

Each has one spelling, so that a resource has one address: ``007``, ``+7`` and ``True`` are refused by name. The OpenAPI
document declares them by their type, so that a generated client takes an integer or a boolean.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

PLACE_MAX: Final = 2**53 - 1
"""The greatest index or size that a parameter can have: the greatest integer that every JSON reader knows."""
LIMIT_MAX: Final = 200
"""Items of one page."""
_CANONICAL: Final = re.compile(r"0|[1-9][0-9]{0,15}")


def _integer(text: object, least: int, most: int) -> int:
    if isinstance(text, int):
        return text  # the default
    if _CANONICAL.fullmatch(str(text)) is None:
        raise PydanticCustomError("integer_parameter", "must be an integer without leading zeros")
    if not least <= (number := int(str(text))) <= most:
        raise PydanticCustomError(
            "integer_parameter", "must lie between {least} and {most}", {"least": least, "most": most}
        )
    return number


def _place(text: object) -> int:
    return _integer(text, 0, PLACE_MAX)


def _limit(text: object) -> int:
    return _integer(text, 1, LIMIT_MAX)


def _switch(text: object) -> bool:
    if text not in {"true", "false", True, False}:
        raise PydanticCustomError("boolean_parameter", "must be true or false")
    return text in {"true", True}


Place = Annotated[int, BeforeValidator(_place), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": PLACE_MAX})]
"""An index in the log, or a size of it."""
Limit = Annotated[int, BeforeValidator(_limit), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": LIMIT_MAX})]
"""The greatest number of items of one page."""
Switch = Annotated[bool, BeforeValidator(_switch), WithJsonSchema({"type": "boolean"})]
"""``true`` or ``false``."""

PathPlace = Annotated[Place, Path(description="an index in the log, or a size of it")]
AsOf = Annotated[Place | None, Query(description="a size of the log: the state after so many entries")]
AT_MS_MAX: Final = 32_503_680_000_000
"""The start of the year 3000 in Unix milliseconds."""
At = Annotated[int | None, Query(ge=0, le=AT_MS_MAX, description="decide at this time, in Unix milliseconds")]
Since = Annotated[
    int | None,
    Query(ge=0, le=AT_MS_MAX, description="those from the first entry at or after this time (Unix milliseconds) on"),
]
DryRun = Annotated[Switch, Query(description="decide, and record nothing")]
