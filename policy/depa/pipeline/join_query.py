"""A join's query, admitted only where each row of its result comes from the rows of one data principal.

    SELECT * FROM icmr_tests AS icmr JOIN index_records AS idx ON idx.phone_hashed = icmr.phone_hashed
    select * from icmr, cowin where icmr.phone_hashed == cowin.phone_hashed

This holds for a plain list of columns over tables joined by equality on the joining key, and then a bound on the
rows of one principal bounds what the principal can change. A window, an aggregate, a limit, a union, a subquery or a
condition on other columns would carry one principal's rows into another's: anything outside the grammar is refused.

An equality ties two different aliases, and each ON ties its own new table to one named before it. A later ON cannot
stand in for an earlier one: the ON of a LEFT JOIN drops no row, so what a join before it has crossed stays crossed.

    query     = "SELECT" columns "FROM" table (joins | tables)
    columns   = "*" | column {"," column}           column = name ["." (name | "*")] ["AS" name]
    table     = name [["AS"] name]
    joins     = {["INNER" | "LEFT" ["OUTER"]] "JOIN" table "ON" equalities}
    tables    = {"," table} ["WHERE" equalities]
    equalities = equality {"AND" equality}          equality = name "." key ("=" | "==") name "." key
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

QUERY_MAX: Final = 20_000
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|==?|[.,*]|\S|\Z)", re.ASCII)
_RESERVED: Final = re.compile(
    r"(ALL|AND|ANTI|AS|BY|CROSS|DISTINCT|EXCEPT|FROM|FULL|GROUP|HAVING|INNER|INTERSECT|JOIN|LATERAL|LEFT|LIMIT|MINUS"
    r"|NATURAL|OFFSET|ON|OR|ORDER|OUTER|OVER|PIVOT|RIGHT|SELECT|SEMI|TABLESAMPLE|UNION|USING|WHERE|WINDOW|WITH)\Z"
)


class NotPlain(ValueError):  # noqa: N818 - what is the case, not an error of the program
    """A query is outside the grammar above; the message names the first such word."""


@dataclass(frozen=True, slots=True)
class PlainQuery:
    """An admitted query; its names are in capitals, as SQL compares them.

    Attributes:
        tables: what it reads, in order.
        renamed: each new name of a column that had another.
    """

    tables: tuple[str, ...]
    renamed: tuple[str, ...]


def check_query(query: str, key: str) -> PlainQuery:
    """A plain join on ``key``.

    Raises:
        NotPlain: naming the first word that is not of the grammar, or the table that its equalities do not tie.
    """
    if len(query) > QUERY_MAX:
        raise NotPlain(f"it has more than {QUERY_MAX} characters")
    return _Parser(query, key).query()


class _Parser:
    def __init__(self, query: str, key: str) -> None:
        self._tokens = _TOKEN.findall(query)
        self._place = 0
        self._key = key.upper()
        self._aliases: dict[str, str] = {}
        self._tied: list[set[str]] = []
        self._renamed: list[str] = []

    def query(self) -> PlainQuery:
        self._expect("SELECT")
        if not self._take("*"):
            self._each(self._column, ",")
        self._expect("FROM")
        self._each(self._table, ",")
        if len(self._aliases) > 1:
            if self._take("WHERE"):
                self._each(self._equality, "AND")
        else:
            while self._join():
                self._table()
                self._expect("ON")
                self._each(self._equality, "AND")
                self._check_tied()
        if self._peek():
            raise NotPlain(f"{self._peek()[:40]!r} is where the query must end")
        self._check_tied()
        return PlainQuery(tuple(self._aliases.values()), tuple(self._renamed))

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _take(self, word: str) -> bool:
        matches = self._peek().upper() == word
        self._place += matches
        return matches

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise NotPlain(f"{self._peek()[:40]!r} is where {word} must be")

    def _name(self) -> str:
        token = self._next()
        if not token.isidentifier() or _RESERVED.match(token.upper()):
            raise NotPlain(f"{token[:40]!r} is where a name must be")
        return token.upper()

    def _each(self, item: Callable[[], None], separator: str) -> None:
        item()
        while self._take(separator):
            item()

    def _column(self) -> None:
        column = self._name()
        if self._take(".") and not self._take("*"):
            column = self._name()
        if self._take("AS") and (name := self._name()) != column:
            self._renamed.append(name)

    def _table(self) -> None:
        table = self._name()
        has_alias = self._take("AS")
        alias = (
            self._name()
            if has_alias or (self._peek().isidentifier() and not _RESERVED.match(self._peek().upper()))
            else table
        )
        if alias in self._aliases:
            raise NotPlain(f"{alias!r} names two tables")
        self._aliases[alias] = table
        self._tied.append({alias})

    def _join(self) -> bool:
        if self._take("LEFT"):
            self._take("OUTER")
        elif not self._take("INNER"):
            return self._take("JOIN")
        self._expect("JOIN")
        return True

    def _equality(self) -> None:
        left = self._side()
        if not (self._take("=") or self._take("==")):
            raise NotPlain(f"{self._peek()[:40]!r} is where = must be")
        right = self._side()
        if left == right:
            raise NotPlain(f"{left!r} is on both sides of an equality, which ties it to no other table")
        joined = [group for group in self._tied if group & {left, right}]
        self._tied = [set().union(*joined), *(group for group in self._tied if group not in joined)]

    def _side(self) -> str:
        alias = self._name()
        self._expect(".")
        column = self._name()
        if column != self._key:
            raise NotPlain(f"{column[:40]!r} is not the joining key")
        if alias not in self._aliases:
            raise NotPlain(f"{alias[:40]!r} is no table of the query")
        return alias

    def _check_tied(self) -> None:
        if len(self._tied) > 1:
            raise NotPlain(f"no equality ties {min(self._tied[-1])!r} to the other tables")
