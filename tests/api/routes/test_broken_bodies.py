"""Every example of a body, broken in every way that the OpenAPI document does not allow: refused as malformed.

A field left out or unknown, a value of another type, a text with a blank at its end, a list that is empty or names an
item twice: at every place of the body, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
import requests

from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c
from tests.api.routes.generated import Asking
from tests.api.two_of_each import TwoOfEach
from tests.api.wire.conforming import committed
from tests.factories.service import open_world

TAKING: Final = sorted(
    name for name, what in committed().operations.items() if JSON_TYPE in what.get("requestBody", {}).get("content", {})
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Somebody of each role."""
    with open_world(tmp_path_factory.mktemp("broken")) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def _broken(value: Any) -> Iterator[Any]:  # noqa: ANN401 - JSON
    """The value with one thing changed, at each place in turn; some of these may be allowed."""
    yield from ([], {}, None)
    if isinstance(value, dict):
        yield {**value, "unknown": 1}
        for name, one in value.items():
            yield {other: same for other, same in value.items() if other != name}
            yield from ({**value, name: changed} for changed in _broken(one))
    elif isinstance(value, list):
        yield [*value, *value]
        yield from ([changed, *value[1:]] for changed in _broken(value[0]))
    elif isinstance(value, str):
        yield from (1, "", f"{value} ", f"{value}\n")
    else:
        yield from (str(value), -1, True)


@pytest.mark.parametrize("operation", TAKING)
def test_what_is_not_allowed_is_malformed(pairs: TwoOfEach, operation: str) -> None:
    """422 and nothing recorded, whatever else stands in it and whoever sent it."""
    what, world = committed().operations[operation], pairs.world
    content = what["requestBody"]["content"][JSON_TYPE]
    form, asking, size = committed().form(content["schema"]), Asking(pairs, operation, mends=False), world.size
    path = next(path for path, methods in committed().told["paths"].items() if what in methods.values())
    names = {one["name"]: one["example"] for one in what.get("parameters", []) if one["in"] == "path"}
    broken = [one for one in _broken(content["example"]) if not form.is_valid(one)]
    assert broken
    with requests.Session() as session:
        for one in broken:
            headers = {"content-type": JSON_TYPE}
            url = f"{world.url}{path.format(**names)}"
            answer = session.post(url, data=c.dump(one), headers=headers, auth=asking, timeout=60)
            assert (answer.status_code, answer.json()["code"]) == (422, "malformed"), one
    assert world.size == size
