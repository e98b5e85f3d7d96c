"""The error of a number that our JSON has no room for names the member that holds it."""

from __future__ import annotations

import pytest

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"plan":{"sampler":{"probability":0.05},"steps":1.5}}', "plan.sampler.probability"),
        ('{"a":"0.5","b":[{"c":1},{"d":[2,9007199254740992]}]}', "b[1].d[1]"),
        ('{"a":{"b":-9007199254740992},"c":1.0}', "a.b"),
        ('{"a":[true,NaN]}', "a[1]"),
        ('[1,{"a":1e999}]', "[1].a"),
        ("2.5", ""),
        (f'{{"a":{"9" * 5_000}}}', ""),
    ],
)
def test_the_first_number_of_the_text_is_named(text: str, field: str) -> None:
    """In the order of the text; one with more digits than an integer is read from is only told."""
    with pytest.raises(Malformed, match=r"floating-point|beyond the integers") as refused:
        c.parse(text.encode(), 10_000)
    assert refused.value.field == field
    with pytest.raises(Malformed) as under:
        c.parse(text.encode(), 10_000, "body")
    assert under.value.field == ("body" if not field else f"body{field}" if field[0] == "[" else f"body.{field}")
