"""A join's query: what is admitted never carries one principal's rows into another's, held against a real database."""

import re
import sqlite3
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.depa.pipeline.join_query import QUERY_MAX, NotPlain, check_query

PLAIN = [
    ("SELECT * FROM a", ("A",)),
    ("SELECT * FROM a JOIN b ON a.k = b.k", ("A", "B")),
    ("select * from a, b, c where a.k == b.k and b.k == c.k", ("A", "B", "C")),
    ("SELECT x.*, y.v AS w FROM a AS x LEFT JOIN b y ON x.k = y.k", ("A", "B")),
    ("SELECT a.v FROM a LEFT OUTER JOIN b ON a.k = b.k INNER JOIN c AS d ON d.k = a.k AND d.k = b.k", ("A", "B", "C")),
]
CROSSING = [
    ("SELECT * FROM a JOIN b", "ON"),
    ("SELECT * FROM a, b", "ties"),
    ("SELECT * FROM a, b WHERE a.k = a.k", "ties"),
    ("SELECT * FROM a JOIN b ON a.k = b.v", "'V' is not the joining key"),
    ("SELECT * FROM a JOIN b ON a.k = 1", "'1'"),
    ("SELECT * FROM a JOIN b ON a.k = b.k OR a.k = a.k", "'OR'"),
    ("SELECT * FROM a JOIN b ON a.k < b.k", "'<'"),
    ("SELECT * FROM a JOIN b ON a.k = z.k", "'Z' is no table"),
    ("SELECT * FROM a CROSS JOIN b", "'CROSS'"),
    ("SELECT * FROM a NATURAL JOIN b", "'NATURAL'"),
    ("SELECT * FROM a RIGHT JOIN b ON a.k = b.k", "'RIGHT'"),
    ("SELECT * FROM a FULL OUTER JOIN b ON a.k = b.k", "'FULL'"),
    ("SELECT * FROM a JOIN b USING (k)", "'USING'"),
    ("SELECT DISTINCT v FROM a", "'DISTINCT'"),
    ("SELECT AVG(v) FROM a", "'('"),
    ("SELECT v, AVG(v) OVER () FROM a", "'('"),
    ("SELECT (SELECT MAX(v) FROM a) FROM a", "'('"),
    ("SELECT * FROM (SELECT * FROM a) b", "'('"),
    ("SELECT * FROM a GROUP BY k", "'GROUP'"),
    ("SELECT * FROM a ORDER BY v LIMIT 1", "'ORDER'"),
    ("SELECT * FROM a LIMIT 1", "'LIMIT'"),
    ("SELECT * FROM a UNION SELECT * FROM b", "'UNION'"),
    ("SELECT * FROM a, a", "names two tables"),
    ("SELECT * FROM a; DROP TABLE a", "';'"),
    ("SELECT * FROM a -- b", "'-'"),
    ("SELECT * FROM a /* b */", "'/'"),
    ("SELECT * FROM a WHERE a.k = a.k", "'WHERE'"),
    ("SELECT v + 1 FROM a", "'+'"),
    ("WITH a AS b SELECT * FROM a", "'WITH'"),
    ("DELETE FROM a", "'DELETE'"),
    ("", "SELECT"),
]


@pytest.mark.parametrize(("query", "tables"), PLAIN)
def test_plain_joins_are_admitted(query: str, tables: tuple[str, ...]) -> None:
    """With the tables they read."""
    assert check_query(query, "k") == tables


@pytest.mark.parametrize(("query", "told"), CROSSING)
def test_whatever_may_cross_principals_is_refused(query: str, told: str) -> None:
    """Naming the word at which the query leaves the grammar."""
    with pytest.raises(NotPlain, match=re.escape(told)):
        check_query(query, "k")


def test_a_query_has_a_greatest_length() -> None:
    """The longest is read; one character more is not."""
    longest = "SELECT * FROM a".ljust(QUERY_MAX)
    assert check_query(longest, "k") == ("A",)
    with pytest.raises(NotPlain, match="more than 20000 characters"):
        check_query(longest + " ", "k")


WORDS = st.sampled_from(
    [
        *("SELECT", "*", "FROM", "a", "b", "c", "x", "AS", "JOIN", "LEFT", "INNER", "OUTER", "CROSS", "NATURAL", "ON"),
        *("a.k", "b.k", "c.k", "x.k", "a.v", "b.v", "=", "==", "<", "AND", "OR", ",", "WHERE", "USING", "(", ")"),
        *("DISTINCT", "GROUP", "BY", "ORDER", "LIMIT", "1", "UNION", "MAX", "COUNT", "OVER", "NOT", "NULL"),
    ]
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A plain query, with some words replaced, left out or put in."""
    words = draw(st.sampled_from([query for query, _ in PLAIN])).replace(",", " , ").split()
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(words)))
        words[place : place + draw(st.integers(0, 1))] = draw(st.lists(WORDS, max_size=2))
    return " ".join(words)


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=5)


def _run(query: str, tables: dict[str, list[tuple[int, int]]]) -> Counter[object]:
    """The result, each row with the joining key of every table beside it."""
    with sqlite3.connect(":memory:") as database:
        for name, rows in tables.items():
            database.execute(f"CREATE TABLE {name} (k, v)")
            database.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)  # noqa: S608 - likewise
        result = Counter(database.execute(query).fetchall())
    database.close()
    return result


@settings(max_examples=200, deadline=None)
@given(queries(), ROWS, ROWS, ROWS, st.integers(0, 3))
def test_what_is_admitted_keeps_principals_apart(
    query: str, a: list[tuple[int, int]], b: list[tuple[int, int]], c: list[tuple[int, int]], gone: int
) -> None:
    """The result over everybody is the results over one principal and over all others, put together."""
    try:
        check_query(query, "k")
    except NotPlain:
        return
    tables = {"a": a, "b": b, "c": c}
    alone = {name: [row for row in rows if row[0] == gone] for name, rows in tables.items()}
    others = {name: [row for row in rows if row[0] != gone] for name, rows in tables.items()}
    try:
        whole = _run(query, tables)
    except sqlite3.OperationalError:
        return  # a column of no table: no result at all
    assert whole == _run(query, alone) + _run(query, others)
