"""The client of a room that answers: signed questions out, answers in, each checked to be of the charge's room."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final, Self

import httpx
from torch import Tensor

from client.http.base_url import is_loopback
from client.http.bounded_answer import read_answer
from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from client.http.problems import Unreachable
from client.keys.signer import Signer
from client.service.service import Service
from ledger.commands.entry import Entry
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.answer_room import WAITING_MAX
from trainer_adapter.ensembles.signed_questions import (
    ANSWER_BYTES_MAX,
    PATH,
    fresh_sealing,
    open_answer,
    question_bytes,
)

POLL_S: Final = 1.0
TIMEOUT_S: Final = 30.0
ANSWER_S: Final = 60.0
"""How long one reply may take, from its question to its last byte."""
Wait = Callable[[float], None]


def room_key(service: Service, charge: str) -> PublicKey:
    """The signing key of the clean room that a charge names, from the charge's entry. Raises: Refused, Unreachable."""
    index = service.charge(charge).get("index")
    entry = Entry.parse(service.entry(c.integer(index, "charge.index", 0, c.INTEGER_MAX)))
    request: Any = entry.request
    return PublicKey.parse(request["clean_room"]["signing"], "clean_room.signing", "Ed25519")


class QuestionClient:
    """Sends questions to one room, as its contract's consumer."""

    def __init__(self, address: str, charge: str, room: PublicKey, signer: Signer, wait: Wait) -> None:
        """Of a room at an address; ``wait`` waits some seconds between two looks."""
        url = httpx.URL(address)
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=not is_loopback(url.host))
        self._charge, self._room, self._signer, self._wait = charge, room, signer, wait

    def __enter__(self) -> Self:
        """Close with the block."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, rows: Sequence[Tensor]) -> Iterator[c.Object]:
        """The answer to each, in order: ``{"answer": ..., "step": ...}``.

        Raises:
            Malformed: in the room's words, for a question that it does not take, or an answer that is not its own.
            Unreachable: if no answer comes.
        """
        for start in range(0, len(rows), WAITING_MAX):
            questions = [self._question(row) for row in rows[start : start + WAITING_MAX]]
            # All are sent before the first is waited for: they are answered together.
            replies = [self._send(*question) for question in questions]
            for place, question in enumerate(questions):
                # They leave together and are served for a while only: where one has left, no other is waited for.
                while (answer := replies[place]) is None:
                    replies[place] = self._send(*question)
                    if replies[place] is None:
                        self._wait(POLL_S)
                yield answer

    def _question(self, row: Tensor) -> tuple[bytes, Any]:
        private, sealing = fresh_sealing()
        return question_bytes(self._charge, f"question-{secrets.token_hex(16)}", row, sealing), private

    def _send(self, data: bytes, private: Any) -> c.Object | None:  # noqa: ANN401 - an X25519 key
        headers = {"content-type": JSON_TYPE, SIGNATURE_HEADER: self._signer.sign(data)}
        try:
            request = self._http.build_request("POST", PATH, content=data, headers=headers)
            reply = read_answer(self._http, request, ANSWER_BYTES_MAX, ANSWER_S, "room")
        except httpx.HTTPError as error:
            raise Unreachable(f"no answer from the room: {type(error).__name__}") from None
        if reply.status_code == HTTPStatus.ACCEPTED:
            return None
        if reply.status_code != HTTPStatus.OK:
            detail = c.members(c.parse(reply.content, ANSWER_BYTES_MAX, "answer"), "answer").get("detail")
            raise Malformed("room", f"answers: {detail}")
        return open_answer(reply.content, reply.headers.get(SIGNATURE_HEADER, ""), self._room, data, private)
