"""Every error leaves as a problem with these very bytes, and none of them adds an entry."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from client.http.endpoints import PROBLEM_TYPE, SIGNATURE_HEADER
from client.keys.signer import Signer
from ledger.commands.registry import KINDS, PATHS
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.wire.canonical_json import Object, digest
from tests.factories.people import BANK_A, HOSPITAL, SRO
from tests.factories.service import ServedWorld

GOLDEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "problems.json").read_text())
_VOID: Object = {"charge": "run-1"}
_SAID_BY = {"SRO": SRO, "TDP": HOSPITAL, "TDC": BANK_A}
_JSON = {"content-type": "application/json", SIGNATURE_HEADER: "e30..e30"}


def _unread(world: ServedWorld, name: str) -> httpx.Response:
    """Requests refused before the book is asked."""
    http = world.http
    requests = {
        "unknown_path": lambda: http.get("/v1/nothing"),
        "unknown_method": lambda: http.delete("/v1/log"),
        "wrong_type": lambda: http.post("/v1/charges", content=b"{}", headers={"content-type": "text/plain"}),
        "too_large": lambda: http.post("/v1/charges", content=b" " * (COMMAND_BYTES_MAX + 1), headers=_JSON),
        "too_large_in_chunks": lambda: http.post("/v1/charges", content=_chunks(), headers=_JSON),
        "document_too_large": lambda: http.put(f"/v1/documents/{'0' * 64}", content=b" " * (2**21 + 1), headers=_JSON),
        "document_digest": lambda: http.put(f"/v1/documents/{'0' * 64}", content=b"data", headers=_JSON),
        "document_unsigned": lambda: http.put(f"/v1/documents/{'0' * 64}", content=b"data"),
        "no_signature": lambda: world.post("/v1/charges", b"{}", None),
        "not_json": lambda: world.post("/v1/charges", b"{", "e30..e30"),
        "not_canonical": lambda: world.post("/v1/charges", b'{ "v":1}', "e30..e30"),
        "float": lambda: world.post("/v1/charges", b'{"v":1.0}', "e30..e30"),
        "missing_field": lambda: world.post("/v1/charges", b"{}", "e30..e30"),
        "quote_of_a_void": lambda: world.post(
            "/v1/quotes", world.command_bytes(world.bank, BANK_A, "void", _VOID, "void-1"), "nobody"
        ),
        "no_parameter": lambda: http.get("/v1/accounts"),
        "bad_parameter": lambda: http.get("/v1/accounts", params={"partition": "digits"}),
        "bad_index": lambda: http.get("/v1/entries/1_0"),
        "no_entry": lambda: http.get("/v1/entries/999"),
        "no_charge": lambda: http.get("/v1/charges/run-1"),
        "no_receipt": lambda: http.get("/v1/receipts/run-1"),
    }
    return requests[name]()


def _chunks() -> Iterator[bytes]:
    for _ in range(COMMAND_BYTES_MAX // 1000 + 1):
        yield b" " * 1000


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_problem_has_these_bytes(quiet: ServedWorld, name: str) -> None:
    """Status, type and body are the committed ones."""
    response = _unread(quiet, name)
    expected = GOLDEN[name]
    assert response.json() == expected
    assert response.status_code == expected["status"]
    assert response.headers["content-type"] == PROBLEM_TYPE
    assert response.headers["cache-control"] == "no-store"


def test_a_401_names_how_to_authenticate_and_a_405_what_is_allowed(quiet: ServedWorld) -> None:
    """The headers that RFC 9110 asks for are there."""
    assert SIGNATURE_HEADER in _unread(quiet, "no_signature").headers["www-authenticate"]
    assert _unread(quiet, "unknown_method").headers["allow"] == "GET, HEAD"


class _Seven(dict[str, str]):
    """A seven in the place of every name in a path."""

    def __missing__(self, name: str) -> str:
        """Whatever its name."""
        return "7"


_SOME: Final = _Seven()


@pytest.fixture(scope="module")
def operations(quiet: ServedWorld) -> dict[str, set[str]]:
    """The methods of each path, as the document has them."""
    paths = quiet.http.get("/v1/openapi.json").json()["paths"]
    return {path: {name.upper() for name in methods} for path, methods in paths.items()}


def test_a_405_names_every_method_of_its_path(quiet: ServedWorld, operations: dict[str, set[str]]) -> None:
    """Of all routes at one path, whichever is looked at first; and each that it names is one."""
    for path, methods in operations.items():
        at = path.format_map(_SOME)
        reported = quiet.http.request("PATCH", at)
        named = set(reported.headers["allow"].split(", "))
        assert (reported.status_code, reported.json()["code"]) == (405, "method_not_allowed")
        assert methods <= named
        assert ("HEAD" in named) == ("GET" in named)
        for method in named - {"POST", "PUT"}:
            assert quiet.http.request(method, at, headers={"authorization": ""}).status_code != 405


def test_a_head_is_a_get_without_its_body(quiet: ServedWorld, operations: dict[str, set[str]]) -> None:
    """The very status and headers, of problems and of the stream of events, too; and the connection goes on."""
    varying = {"date", "ratelimit", "x-request-id", "transfer-encoding"}
    for path in operations:
        at = path.format_map(_SOME)
        head = quiet.http.head(at)
        with quiet.http.stream("GET", at) as got:
            ignored = varying | ({"content-length"} if at == "/metrics" else set())
            reported = [{k: v for k, v in one.headers.items() if k not in ignored} for one in (head, got)]
            assert (head.status_code, reported[0], head.content) == (got.status_code, reported[1], b""), at
    assert quiet.http.head("/v1/log").is_success
    assert quiet.http.head("/v1/posts").headers["allow"] == "POST"
    assert "transfer-encoding" not in quiet.http.head("/v1/events").headers


def _told(world: ServedWorld, caplog: pytest.LogCaptureFixture) -> tuple[dict[str, object], list[str]]:
    """What the service answers to a read, and what it logs meanwhile."""
    with caplog.at_level(logging.ERROR):
        response = world.http.get("/v1/checkpoint")
    assert response.status_code == response.json()["status"]
    return response.json(), [record.getMessage() for record in caplog.records if record.name == "api.problems"]


def _problem(code: str, status: int, title: str) -> dict[str, object]:
    empty: dict[str, object] = {"detail": "", "field": "", "id": "", "index": None, "reasons": []}
    return {**empty, "code": code, "status": status, "title": title, "type": f"urn:epsilon:problem:{code}"}


def test_a_failure_inside_tells_nothing_and_is_logged(
    world: ServedWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a table gone the service answers 500 without detail, and says so in its log."""
    with closing(sqlite3.connect(tmp_path / "book.sqlite")) as database:
        database.execute("DROP TABLE checkpoint")
    body, lines = _told(world, caplog)
    assert body == _problem("internal", 500, "Internal error; retry the same request")
    assert [line.partition(" failed")[0] for line in lines] == ["GET /v1/checkpoint"]


def test_a_stopped_book_is_503_and_its_reason_is_logged(world: ServedWorld, caplog: pytest.LogCaptureFixture) -> None:
    """The caller is told what to do, the operator why."""
    world.book.close()
    body, lines = _told(world, caplog)
    title = "The book stopped; retry the same command after the service restarts"
    assert body == _problem("stopped", 503, title)
    assert lines == ["GET /v1/checkpoint: the book is closed"]


@pytest.mark.parametrize(
    "kind", sorted(kind for kind in PATHS if set(KINDS[kind].roles) & set(_SAID_BY) and kind != "void")
)
def test_a_command_sent_to_another_kind_s_path_is_refused(quiet: ServedWorld, kind: str) -> None:
    """Only a void may go to /v1/voids, whatever the signature says."""
    actor = next(_SAID_BY[role] for role in KINDS[kind].roles if role in _SAID_BY)
    signer = {SRO: quiet.sro, HOSPITAL: quiet.hospital, BANK_A: quiet.bank}[actor]
    raw = quiet.command_bytes(signer, actor, "void", _VOID, "void-1")
    response = quiet.post(PATHS[kind], raw, signer.sign(raw))
    assert (response.status_code, response.json()["field"]) == (422, "kind")


@pytest.mark.parametrize("fault", ["foreign key", "other bytes", "other kid", "truncated", "attached", "none"])
def test_a_wrong_signature_is_refused(quiet: ServedWorld, fault: str) -> None:
    """Whatever is wrong with a signature, it is 401 and nothing is recorded."""
    raw = quiet.command_bytes(quiet.bank, BANK_A, "void", _VOID, "void-1")
    stranger = Signer.generate()
    good, foreign = (quiet.sign(one, "/v1/voids", raw, "void-1") for one in (quiet.bank, stranger))
    jws, detail = {
        "foreign key": (foreign, "was made with another key"),
        "other bytes": (quiet.sign(quiet.bank, "/v1/voids", raw + b" ", "void-1"), "does not verify"),
        "other kid": (f"{good.partition('.')[0]}..{foreign.rpartition('.')[2]}", "does not verify"),
        "truncated": (good[:-4], "signature: "),
        "attached": (good.replace("..", ".e30."), "must be a detached JWS"),
        "none": ("eyJhbGciOiJub25lIn0..", "is missing"),
    }[fault]
    response = quiet.post("/v1/voids", raw, jws)
    assert (response.status_code, response.json()["code"]) == (401, "signature_invalid")
    assert detail in response.json()["detail"]


def test_a_command_by_a_key_that_nobody_registered_is_refused(quiet: ServedWorld) -> None:
    """A stranger's own signature over its own command is worth nothing."""
    stranger = Signer.generate()
    raw = quiet.command_bytes(stranger, BANK_A, "void", _VOID, "void-1")
    response = quiet.post("/v1/voids", raw, quiet.sign(stranger, "/v1/voids", raw, "void-1"))
    assert (response.status_code, response.json()["code"]) == (401, "signature_invalid")
    assert "has registered the key" in response.json()["detail"]


def test_a_document_of_a_stranger_is_refused(quiet: ServedWorld) -> None:
    """Documents are kept only for keys that the book knows."""
    data = b'{"v":1}'
    path = f"/v1/documents/{digest(data)}"
    headers = {SIGNATURE_HEADER: quiet.sign(Signer.generate(), path, data, digest(data), "PUT")}
    response = quiet.http.put(path, content=data, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "signature_invalid")
    assert "has registered the key" in response.json()["detail"]


def test_two_signature_headers_are_none(quiet: ServedWorld) -> None:
    """Which of two to believe is not ours to choose."""
    raw = quiet.command_bytes(quiet.bank, BANK_A, "void", _VOID, "void-1")
    jws = quiet.sign(quiet.bank, "/v1/voids", raw, "void-1")
    headers = [("content-type", "application/json"), (SIGNATURE_HEADER, jws), (SIGNATURE_HEADER, jws)]
    response = quiet.http.post("/v1/voids", content=raw, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "signature_missing")


def test_an_actor_other_than_the_key_s_owner_is_refused(quiet: ServedWorld) -> None:
    """The bank's key signs for the bank and nobody else, whoever's token is shown."""
    body: Object = {"document": "0" * 64, "signatures": ["0" * 64]}
    raw = quiet.command_bytes(quiet.bank, HOSPITAL, "contract", body, "contract-1")
    for shown in (BANK_A, HOSPITAL):
        signature = quiet.sign(quiet.bank, "/v1/contracts", raw, "contract-1")
        response = quiet.post("/v1/contracts", raw, signature, **quiet.everybody.shown(shown))
        assert (response.status_code, response.json()["field"]) == (403, "actor")
