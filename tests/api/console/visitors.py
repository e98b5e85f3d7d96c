"""People with browsers, one of each role, logged in at the world's issuer as people log in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx

from api.dev_issuer.issuer import Person
from tests.factories.people import AUDITOR, BANK_A, HOSPITAL, OPERATOR, SRO, STRANGER, TSO
from tests.factories.service import ServedWorld

PEOPLE: Final = {
    "SRO": Person(SRO),
    "TSO": Person(TSO),
    "TDP": Person(HOSPITAL),
    "TDC": Person(BANK_A),
    "AUDITOR": Person(AUDITOR),
    "OPERATOR": Person(OPERATOR, ("OPERATOR",)),
    "": Person(STRANGER),
}
"""By role; the empty one is of an organisation that is not on record."""
NAMES: Final = {role: role.lower() or "stranger" for role in PEOPLE}
ANYONE: Final = "no session"


def browser(url: str) -> httpx.Client:
    """A browser at a service, which keeps cookies and follows nothing by itself."""
    return httpx.Client(base_url=url, trust_env=False, timeout=60)


def log_in(http: httpx.Client, issuer: str, person: str, following: str = "/console/") -> httpx.Response:
    """Log a person in; the answer that the console gives to what the issuer sent back."""
    begun = http.get("/console/login", params={"issuer": issuer, "next": following})
    assert begun.status_code == 303, begun.text
    parts = urlsplit(begun.headers["location"])
    chosen = urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), ("person", person)])))
    sent_back = httpx.get(chosen, trust_env=False)
    assert sent_back.status_code == 303, sent_back.text
    return http.get(sent_back.headers["location"])


@contextmanager
def visitors(world: ServedWorld) -> Iterator[Mapping[str, httpx.Client]]:
    """A browser of each role, and one of nobody's."""
    people = {NAMES[role]: person for role, person in PEOPLE.items()}
    with world.issuing(people) as issuer, ExitStack() as stack:
        found = {role: stack.enter_context(browser(world.url)) for role in (*PEOPLE, ANYONE)}
        for role in PEOPLE:
            answer = log_in(found[role], issuer, NAMES[role])
            assert (answer.status_code, answer.headers["location"]) == (303, "/console/"), answer.text
            # The world's clock stands and a session goes on; cookies would end by the machine's.
            for cookie in found[role].cookies.jar:
                cookie.expires = None
        yield found
