"""Client of witnesses over HTTP: submit the newest checkpoint and store the cosignature (C2SP tlog-witness)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

import httpx
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from ledger.log.verification import parse_witness_key
from ledger.log.witness_protocol import (
    ANSWER_BYTES_MAX,
    SIZE_TYPE,
    add_checkpoint,
    cosignature_time_ms,
    read_cosignature,
    read_size,
)
from ledger.store.cosignatures import cosignature_line, newest_size, store_cosignature
from ledger.store.snapshot import Log
from ledger.verifier import WitnessKey
from ledger.wire.field_types import TIME_MAX
from ledger.wire.malformed import Malformed

TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
ATTEMPTS: Final = 3
"""Requests to one witness at most: each time another submitter may advance it, and it answers 409 with its size."""

ANSWER_S: Final = 30.0
"""The longest time that a request and its answer may take, however it comes: also one header after the other."""
_SAID: Final[dict[int, str]] = {
    HTTPStatus.BAD_REQUEST: "rejects the request as malformed",
    HTTPStatus.FORBIDDEN: "has another key for this log",
    HTTPStatus.NOT_FOUND: "does not know this log",
}


class WitnessRefused(Exception):  # noqa: N818 - what is the case
    """A witness answered and did not cosign.

    Attributes:
        alarming: it has seen another history, or a longer one, than this book has.
    """

    def __init__(self, what: str, *, alarming: bool = False) -> None:
        """Build the error from the witness's answer."""
        super().__init__(what)
        self.alarming = alarming


@dataclass(frozen=True, slots=True)
class Witness:
    """A witness: its pinned key, and the base URL that checkpoints are submitted to."""

    key: WitnessKey
    url: httpx.URL

    @classmethod
    def parse(cls, text: str) -> Witness:
        """Read ``VKEY=URL``. Raises: Malformed."""
        # Base64 may end in '=' itself; a URL begins where a scheme does.
        vkey, mark, rest = text.partition("=http")
        try:
            url = httpx.URL(f"http{rest}".rstrip("/"))
            valid = bool(mark) and url.scheme in {"http", "https"} and url.host.encode("idna") != b""
        except (httpx.InvalidURL, UnicodeError):
            valid = False
        if not valid or url.query or url.fragment:
            raise Malformed("witness", f"must be VKEY=URL with an http or https URL, not {text[:200]!r}")
        return cls(parse_witness_key(vkey), url)


@dataclass(frozen=True, slots=True)
class Cosigned:
    """A witness's cosignature line over the checkpoint of this size, made now or before."""

    size: int
    line: str
    repeated: bool

    @property
    def time_ms(self) -> int:
        """When the witness cosigned, by its own clock (Unix ms)."""
        return cosignature_time_ms(self.line)


def witness_newest(  # noqa: PLR0913 - what a submission is held to
    engine: Engine,
    witness: Witness,
    *,
    reads: Engine | None = None,
    again: bool = False,
    empty: str | None = None,
    answer_s: float = ANSWER_S,
) -> Cosigned:
    """Have a witness cosign the newest checkpoint of a book, and store the cosignature beside the log.

    Args:
        engine: a writing engine; no connection is open while the witness answers.
        witness: the witness to submit to.
        reads: a reading engine, where reading must not wait for a writer.
        again: submit also a checkpoint that the witness has cosigned: the stored cosignature proves nothing about
            what it has seen since.
        empty: the log's checkpoint of no entries, which is shown for an empty book; its cosignature is not stored.
        answer_s: how many seconds a request and its answer may take.

    Raises:
        WitnessRefused: if the witness does not cosign, with its answer.
        Malformed: if its answer is not a cosignature of its key, or takes too long to come.
        httpx.RequestError: if it cannot be reached in time.
        KeyError: if the book is empty, and no ``empty`` is given.
    """
    with (reads or engine).begin() as connection:
        size, _ = _newest(connection, empty)
        stored = cosignature_line(connection, size, witness.key)
        known_size = newest_size(connection, witness.key)
    if stored is not None and not again:
        return Cosigned(size, stored, repeated=True)
    done = _request(reads or engine, witness, known_size, empty, answer_s)
    if done.size and (stored is None or done.size != size):
        with suppress(IntegrityError), engine.begin() as connection:
            # Another process may have stored a cosignature for the same size just before: that one stays.
            store_cosignature(connection, done.size, witness.key, done.line)
    return done


def _newest(connection: Connection, empty: str | None) -> tuple[int, str]:
    book = Log(connection)
    return book.size, empty if not book.size and empty is not None else book.checkpoint


def _request(engine: Engine, witness: Witness, known_size: int, empty: str | None, answer_s: float) -> Cosigned:
    for _ in range(ATTEMPTS):
        # Read each time: another process may have committed, and shown its checkpoint, a moment ago.
        with engine.begin() as connection:
            size, note = _newest(connection, empty)
        _check_not_longer(witness, known_size, size)
        request = add_checkpoint(known_size, _proof(engine, known_size, size), note)
        status, kind, body = asyncio.run(_post(witness, request, answer_s))
        if status == HTTPStatus.OK:
            done = Cosigned(size, read_cosignature(body, note, witness.key), repeated=False)
            if done.time_ms > TIME_MAX:
                raise Malformed("cosignature", "must state a time before the year 10000, in Unix seconds")
            return done
        if status != HTTPStatus.CONFLICT or kind != SIZE_TYPE:
            raise _refusal(witness, status, known_size)
        known_size = read_size(body)
    with engine.begin() as connection:
        _check_not_longer(witness, known_size, Log(connection).size)
    raise WitnessRefused(f"{witness.key.name} answered with another size {ATTEMPTS} times: it has other clients")


def _check_not_longer(witness: Witness, known: int, size: int) -> None:
    if known > size:
        what = f"{witness.key.name} has cosigned {known} entries of this log, and the book has {size}"
        raise WitnessRefused(f"{what}: the book is an older copy, or the log has forked", alarming=True)


def _proof(engine: Engine, old: int, size: int) -> list[bytes]:
    if not old:
        return []
    with engine.begin() as connection:
        return Log(connection, size).consistency(old)


async def _post(witness: Witness, body: bytes, answer_s: float) -> tuple[int, str, bytes]:
    """The answer's status, its media type, and its body. Raises: Malformed, if it is too long or takes too long."""
    url, answer = f"{witness.url}/add-checkpoint", b""
    bound = f"took more than {ANSWER_BYTES_MAX} bytes or {answer_s:g} seconds"
    # A proxy from the environment must not be used for a witness on this machine.
    client = httpx.AsyncClient(timeout=TIMEOUT, trust_env=not _is_loopback(witness.url.host))
    headers = {"content-type": "text/plain; charset=utf-8"}
    try:
        # The client's own timeouts begin again with each piece that comes.
        async with (
            asyncio.timeout(answer_s),
            client as http,
            http.stream("POST", url, content=body, headers=headers) as response,
        ):
            async for piece in response.aiter_bytes():
                answer += piece
                if len(answer) > ANSWER_BYTES_MAX:
                    raise Malformed("cosignature", bound)
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            return response.status_code, kind, answer
    except TimeoutError:
        raise Malformed("cosignature", bound) from None


def _refusal(witness: Witness, status: int, old: int) -> WitnessRefused:
    name = witness.key.name
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return WitnessRefused(
            f"{name} refuses: the {old} entries it has cosigned are not this book's first", alarming=True
        )
    return WitnessRefused(f"{name} {_SAID.get(status, 'does not cosign')} (HTTP {status})")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
