"""The fields of a form that a person sends."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from api.console.frame.problem_pages import ProblemPage
from api.http.body import bounded

FORM_BYTES_MAX: Final = 1 << 20
"""A form with a document in it."""
FIELDS_MAX: Final = 32


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form. Raises: Problem, if it is too long or does not arrive; ProblemPage."""
    body = await bounded(request, FORM_BYTES_MAX)
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, strict_parsing=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        pairs = []
    if len(dict(pairs)) != len(pairs) or not pairs:
        raise ProblemPage(422, "malformed", "The form cannot be read", "Open the page again, and fill it in.")
    return dict(pairs)
