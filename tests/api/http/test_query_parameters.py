"""Parameters that are no text: one spelling each, one type in the document, and a sentence for what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from api.http.problems import install
from api.http.query_parameters import LIMIT_MAX, PLACE_MAX, AsOf, DryRun, Limit, PathPlace

APP = FastAPI()
install(APP)


@APP.get("/{index}")
def echo(index: PathPlace, limit: Limit = 50, as_of: AsOf = None, *, dry_run: DryRun = False) -> list[object]:
    """What was read."""
    return [index, limit, as_of, dry_run]


CLIENT = TestClient(APP)


def get(path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
    """What was read, or the detail of the problem."""
    response = CLIENT.get(path, params=parameters)
    return response.json() if response.status_code == 200 else response.json()["detail"]


@given(
    index=st.integers(0, PLACE_MAX),
    limit=st.integers(1, LIMIT_MAX),
    as_of=st.none() | st.integers(0, PLACE_MAX),
    dry_run=st.booleans(),
)
def test_every_value_is_read_as_it_is_sent(index: int, limit: int, as_of: int | None, *, dry_run: bool) -> None:
    """As its type, or its default where it is not sent."""
    parameters = {} if as_of is None else {"as_of": str(as_of)}
    sent = {"limit": str(limit), "dry_run": "true" if dry_run else "false", **parameters}
    assert get(f"/{index}", **sent) == [index, limit, as_of, dry_run]
    assert get(f"/{index}", **parameters) == [index, 50, as_of, False]


@pytest.mark.parametrize("text", ["", "01", "+1", " 1", "1 ", "-1", "1.0", "1e1", "0x1", "1_0", "٣", "true", "9" * 17])
def test_another_spelling_of_an_integer_is_refused(text: str) -> None:
    """Python's own reader takes six of them."""
    assert get("/0", limit=text) == "limit: must be an integer without leading zeros"
    assert get("/0", as_of=text) == "as_of: must be an integer without leading zeros"


@pytest.mark.parametrize("text", ["", "True", "TRUE", "1", "0", "yes", "on", "t", "null"])
def test_another_spelling_of_a_switch_is_refused(text: str) -> None:
    """The framework's own reader takes seven of them."""
    assert get("/0", dry_run=text) == "dry_run: must be true or false"


@pytest.mark.parametrize(("field", "text"), [("limit", "0"), ("limit", str(LIMIT_MAX + 1)), ("as_of", str(2**53))])
def test_an_integer_out_of_bounds_is_refused(field: str, text: str) -> None:
    """The bounds are told."""
    assert get("/0", **{field: text}).startswith(f"{field}: must lie between ")
