"""A join's query: what is admitted never carries one principal's rows into another's, held against a real database."""

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

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
    ("SELECT * FROM a LEFT JOIN b ON b.k = a.k LEFT JOIN c ON a.k = b.k AND b.k = c.k", ("A", "B", "C")),
    ("SELECT * FROM a JOIN a AS x ON a.k = x.k", ("A", "A")),
]
CROSSING = [
    ("SELECT * FROM a JOIN b", "ON"),
    ("SELECT * FROM a, b", "ties"),
    ("SELECT * FROM a, b WHERE a.k = a.k", "'A' is on both sides"),
    ("SELECT * FROM a JOIN b ON a.k = b.k AND b.k = b.k", "'B' is on both sides"),
    ("SELECT * FROM a LEFT JOIN b ON a.k = a.k LEFT JOIN c ON a.k = c.k AND b.k = c.k", "'A' is on both sides"),
    ("SELECT * FROM a JOIN b ON b.k = b.k JOIN c ON a.k = c.k AND b.k = c.k", "'B' is on both sides"),
    ("SELECT * FROM a JOIN b ON a.k = b.k LEFT JOIN c ON a.k = b.k", "ties 'C' to the other tables"),
    ("SELECT * FROM a JOIN b ON a.k = b.k JOIN c ON b.k = a.k JOIN a AS x ON x.k = c.k AND x.k = a.k", "ties 'C'"),
    ("SELECT * FROM a JOIN b ON a.k = c.k JOIN c ON a.k = c.k AND b.k = c.k", "'C' is no table"),
    ("SELECT * FROM a, b, c WHERE a.k = b.k", "ties 'C'"),
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
    assert check_query(query, "k").tables == tables


@pytest.mark.parametrize(("query", "told"), CROSSING)
def test_whatever_may_cross_principals_is_refused(query: str, told: str) -> None:
    """Naming the word at which the query leaves the grammar."""
    with pytest.raises(NotPlain, match=re.escape(told)):
        check_query(query, "k")


def test_columns_that_get_another_name_are_told() -> None:
    """By their new name; what keeps its own is not."""
    query = "SELECT a.v AS w, b.u, a.k AS K, c AS d, b.* FROM a JOIN b ON a.k = b.k"
    assert check_query(query, "k").renamed == ("W", "D")
    assert check_query("SELECT * FROM a AS x", "k").renamed == ()


def test_a_query_has_a_greatest_length() -> None:
    """The longest is read; one character more is not."""
    longest = "SELECT * FROM a".ljust(QUERY_MAX)
    assert check_query(longest, "k").tables == ("A",)
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


def _keeps_apart(query: str, tables: dict[str, list[tuple[int, int]]], gone: int) -> bool:
    """Whether the result over everybody is the results over one principal and over all others, put together."""
    alone = {name: [row for row in rows if row[0] == gone] for name, rows in tables.items()}
    others = {name: [row for row in rows if row[0] != gone] for name, rows in tables.items()}
    return _run(query, tables) == _run(query, alone) + _run(query, others)


@settings(max_examples=200, deadline=None)
@given(queries(), ROWS, ROWS, ROWS, st.integers(0, 3))
def test_what_is_admitted_keeps_principals_apart(
    query: str, a: list[tuple[int, int]], b: list[tuple[int, int]], c: list[tuple[int, int]], gone: int
) -> None:
    """Whatever words were drawn, and whatever the tables hold."""
    try:
        check_query(query, "k")
    except NotPlain:
        return
    try:
        assert _keeps_apart(query, {"a": a, "b": b, "c": c}, gone)
    except sqlite3.OperationalError:
        return  # a column of no table: no result at all


def _chains() -> Iterator[str]:
    """Every chain of two joins whose ON equates one or two pairs of the tables named so far, its own or not."""
    conditions = []
    for names in ("ab", "abc"):
        pairs = [f"{left}.k = {right}.k" for left, right in combinations_with_replacement(names, 2)]
        conditions.append([*pairs, *(" AND ".join(pair) for pair in combinations(pairs, 2))])
    for (first, second), kinds in product(product(*conditions), product(("INNER", "LEFT"), repeat=2)):
        yield f"SELECT * FROM a {kinds[0]} JOIN b ON {first} {kinds[1]} JOIN c ON {second}"  # noqa: S608 - words of this file


def test_every_chain_of_joins_that_is_admitted_keeps_principals_apart() -> None:
    """INNER and LEFT alike: of 504 chains those whose every ON ties its own table, over principals in some tables."""
    tables = {"a": [(0, 1), (1, 2), (2, 3)], "b": [(0, 4), (1, 5), (3, 6)], "c": [(0, 7), (2, 8), (3, 9)]}
    admitted = []
    for query in _chains():
        with contextlib.suppress(NotPlain):
            check_query(query, "k")
            admitted.append(query)
    # Of the first ON a.k = b.k alone; of the second one of two ties, both, or either with a.k = b.k.
    assert len(admitted) == 4 * 5
    assert [query for query in admitted for gone in range(4) if not _keeps_apart(query, tables, gone)] == []
