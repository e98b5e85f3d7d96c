"""Every page in every role: who may open it, what it never shows, and what it is made of."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import httpx
import pytest

import api.console
from api.auth.authorisation import OPERATIONS, PUBLIC
from api.console.frame.headers import POLICY
from api.console.frame.tables import defused
from api.console.view_list import PAGES
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import ANYONE, PEOPLE
from tests.factories.people import BANK_B, CLINIC

FORBIDDEN: Final = (
    "accuracy",
    "bad record",
    "batch_size",
    "batch size",
    "clipping",
    "data_key",
    "device id",
    "device_id",
    "gradient",
    "invalid record",
    "private_key",
    "sealing",
    "step time",
    "steps per second",
    "training loss",
    "wrapped",
    '"x":',
)
"""What no page shows in any role: each says something of single records, of keys, or of machines."""
OTHERS: Final = ("run-2", "run-4", BANK_B, "digits-bank-b")
"""Of the other bank: its runs, its name and its contract, which the bank's and its hospital's pages never show."""
MAY_NAME: Final = {"/lineage", "/merger", "/lineage/{did}"}
"""Pages that list organisations, which everybody on record may read, or name one that the address names."""


def _may(role: str, needs: tuple[str, ...]) -> bool:
    """By the table of access of the API, and nothing else."""
    return all(one in PUBLIC or role in OPERATIONS.get(one, ()) for one in needs)


def test_whoever_may_call_what_a_page_needs_may_open_it_and_nobody_else(looked: Looked) -> None:
    """The matrix of roles by pages follows from the API's table."""
    for page in PAGES:
        address = addresses(looked.pairs)[page.path]
        for role, http in looked.browsers.items():
            answer = http.get(address)
            if role == ANYONE:
                expected = 200 if page.public else 303
            else:
                expected = 200 if page.public or _may(role, page.needs) else 403
            # A role may open the page, and still see nothing of what is another's there.
            found = answer.status_code
            assert found == expected or (expected == 200 and found == 404 and role == "TSO"), (page.path, role, found)


def test_the_matrix_has_its_corners(looked: Looked) -> None:
    """What the table of access says today, so that a page does not lose its needs unseen."""
    opened = {page.path: {role for role in PEOPLE if page.public or _may(role, page.needs)} for page in PAGES}
    assert opened["/knowledge/{provider}/{dataset}"] == {"SRO", "TDP", "AUDITOR"}
    assert opened["/planner"] == {"SRO", "TDP", "TDC"}
    assert opened["/operations"] == {"AUDITOR", "OPERATOR"}
    assert opened["/policy-impact"] == {"SRO"}
    assert opened["/contract-proposals/{sha256}"] == {"SRO", "TDP", "TDC"}
    assert opened["/contracts/{id}"] == {"SRO", "TDP", "TDC", "AUDITOR"}
    assert opened["/register"] == set(PEOPLE)
    assert looked.browsers.keys() - PEOPLE.keys() == {ANYONE}


def test_no_page_shows_what_is_never_shown(looked: Looked) -> None:
    """In any role, on the page or in its rows as CSV."""
    for path, address in addresses(looked.pairs).items():
        if path.endswith("/bytes"):
            continue  # the very bytes that are hashed or signed, which the API gives to the same person
        for role, http in looked.browsers.items():
            for text in _texts(http, address):
                low = text.lower()
                assert [one for one in FORBIDDEN if one in low] == [], (path, role)


def _problems(looked: Looked) -> list[str]:
    """Addresses that lead to an error in some role: unknown ids, another's, values out of bounds, no page at all."""
    own = addresses(looked.pairs)
    swaps = (("run-1", "run-2"), ("run-3", "run-4"), ("hospital.example", "clinic.example"), ("bank-a", "bank-b"))
    foreign = list(own.values())
    for mine, other in swaps:
        foreign = [one.replace(mine, other) for one in foreign]
    planned = "/console/planner?contract={0}&partition={1}&probability={2}&noise={3}&steps=5"
    contract, ref = looked.pairs.own.contract, looked.pairs.own.partition
    return [
        *(one for one in foreign if not one.endswith(("/bytes", ".json"))),
        "/console/nothing",
        "/console/meaning?epsilon=x",
        "/console/merger?first=x&second=y",
        "/console/runs/run-1/frames?x=1",
        "/console/decisions/run-1?csv=nothing",
        planned.format("0" * 64, ref, "0.05", "2"),
        planned.format(contract, ref, "2", "x"),
        planned.format(contract, "a/b/c", "0.05", "2"),
    ]


def test_no_error_form_or_frame_shows_what_is_never_shown(looked: Looked) -> None:
    """In any role; nor does an error name what is another's."""
    statuses = set[int]()
    for role, http in looked.browsers.items():
        for address in _problems(looked):
            answer = http.get(address, timeout=20) if "frames" not in address else _first_of(http, address)
            statuses.add(answer.status_code)
            assert [one for one in FORBIDDEN if one in answer.text.lower()] == [], (role, address)
        for form in ({}, {"document": "kind: policy"}, {"document": "x", "form_token": "y"}, {"a": "b" * 3_000}):
            answer = http.post("/console/policy-impact", data=form)
            statuses.add(answer.status_code)
            assert [one for one in FORBIDDEN if one in answer.text.lower()] == [], (role, form)
    assert statuses >= {200, 303, 403, 404, 422}


def _first_of(http: httpx.Client, address: str) -> httpx.Response:
    """The answer of a stream of frames, with its first frame."""
    with http.stream("GET", address) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            lines = answer.iter_lines()
            text = next(line for line in lines if line.startswith("data: "))
            return httpx.Response(answer.status_code, text=text)
        answer.read()
        return answer


def test_the_bank_sees_nothing_of_the_other_bank(looked: Looked) -> None:
    """Neither on a page that it may open nor in an error."""
    http = looked.browsers["TDC"]
    own = addresses(looked.pairs)
    foreign = {
        path: one.replace("run-1", "run-2").replace("run-3", "run-4").replace("hospital.example", "clinic.example")
        for path, one in own.items()
    }
    for path, address in own.items():
        if path not in MAY_NAME:
            for text in _texts(http, address):
                assert [one for one in (*OTHERS, CLINIC) if one in text] == [], path
    for path, address in foreign.items():
        if address != own[path]:
            answer = http.get(address)
            # The planner keeps its form, and says in it what the API would.
            assert answer.status_code in {403, 404} or "there is no partition" in answer.text, path


def test_every_page_is_under_the_strict_policy_and_is_kept_by_no_cache(looked: Looked) -> None:
    """No script, no style and no event handler is written into a page, and nothing is of another host."""
    for path, address in addresses(looked.pairs).items():
        answer = looked.browsers["SRO"].get(address)
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        assert answer.headers["content-security-policy"] == POLICY, path
        assert (answer.headers["cache-control"], "cookie" in answer.headers["vary"]) == ("no-store", True)
        found = _Elements()
        found.feed(answer.text)
        assert found.wrong == [], path
        assert found.headings[:1] == ["h1"], path
        assert found.unlabelled == [], path


class _Elements(HTMLParser):
    """What a page must not have: anything inline or from elsewhere, or an input without a label; and its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.headings: list[str] = []
        self.unlabelled: list[str] = []
        self._labels = 0
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        given = dict(attrs)
        self.wrong += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        for name in ("src", "href", "action", "data"):
            value = given.get(name) or ""
            if value.partition(":")[0] in {"http", "https", "javascript"} or value.startswith("//"):
                self.wrong.append(f"{tag} {name}={value}")
        self.wrong += ["script"] if tag == "script" and "src" not in given else []
        self.wrong += ["style"] if tag == "style" else []
        self.headings += [tag] if tag in {"h1", "h2", "h3"} else []
        self._labels += tag == "label"
        if tag in {"input", "select", "textarea"} and given.get("type") != "hidden" and not self._labels:
            self.unlabelled.append(str(given.get("name")))

    def handle_endtag(self, tag: str) -> None:
        """A label ends."""
        self._labels -= tag == "label"


def _texts(http: httpx.Client, address: str) -> list[str]:
    """A page, and each of its tables as CSV."""
    page = http.get(address)
    names = re.findall(r"[?&;]csv=([a-z]+)", page.text) if page.is_success else []
    mark = "&" if "?" in address else "?"
    return [page.text, *(http.get(f"{address}{mark}csv={name}").text for name in dict.fromkeys(names))]


def test_rows_as_csv_have_the_exact_numbers_and_no_formula(looked: Looked) -> None:
    """As many rows as the page, under the same columns."""
    address = addresses(looked.pairs)["/partitions/{provider}/{dataset}/{partition}"]
    http = looked.browsers["TDP"]
    answer = http.get(f"{address}?csv=runs")
    rows = list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert answer.headers["content-disposition"] == 'attachment; filename="runs.csv"'
    assert rows[0][:4] == ["Run", "By", "Charged", "State"]
    assert [row[0] for row in rows[1:]] == ["run-1", "run-3"]
    exact = rows[2][6]
    assert len(exact) > 6
    assert f'title="{exact}"' in http.get(address).text
    assert http.get(f"{address}?csv=nothing").status_code == 404


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", "\n=1"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(text: str) -> None:
    """By an apostrophe before it; what begins otherwise stays as it is."""
    assert defused(text) == f"'{text}"
    assert defused(f"a{text}") == f"a{text}"


def test_files_are_named_by_their_content_and_kept(looked: Looked) -> None:
    """And none but those that pages name is given out."""
    http = looked.browsers[ANYONE]
    page = http.get("/console/meaning").text
    named = re.findall(r'href="(/console/static/console\.[0-9a-f]{16}\.css)"', page)
    style = http.get(named[0])
    assert (style.status_code, "immutable" in style.headers["cache-control"]) == (200, True)
    fonts = re.findall(r'url\("([^"]+)"\)', style.text)
    assert len(fonts) == 2
    assert [http.get(f"/console/static/{one}").status_code for one in fonts] == [200, 200]
    for other in ("console.css", "vendored.json", "..%2fapp.py", "verify.js"):
        assert http.get(f"/console/static/{other}").status_code == 404


def test_what_is_vendored_is_as_its_makers_publish_it() -> None:
    """The fonts have the digests that are recorded beside them, with licence and version."""
    folder = Path(api.console.__file__).parent / "static"
    recorded = json.loads((folder / "vendored.json").read_bytes())
    assert {recorded[name] for name in ("licence", "package", "version")} == {
        "5.3.0",
        "@fontsource-variable/inter",
        "OFL-1.1",
    }
    found = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.glob("*.woff2")}
    assert found == recorded["files"]
    assert (folder / "LICENSE").is_file()


def test_an_error_is_a_page_that_says_what_happened(looked: Looked) -> None:
    """Not found, not for this role, too long a form, a method that is none."""
    http = looked.browsers["TDC"]
    answers = {
        404: http.get("/console/decisions/run-99"),
        403: http.get("/console/operations"),
        405: http.post("/console/datasets", data={"a": "b"}),
        422: http.get("/console/meaning?epsilon=-1"),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert '<p class="problem" role="alert">' in answer.text, status
        assert "Traceback" not in answer.text
    assert looked.browsers["SRO"].post("/console/policy-impact", content=b"x" * (1 << 21)).status_code == 413
