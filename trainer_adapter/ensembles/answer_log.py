"""The answers of a run, each durable here before it leaves; a later process gives the same ones again.

One line an answer, of RFC 8785 JSON; sealed (AES-256-GCM, base64url) where the run's state is, since what has not left
yet is no one's to read:

    {"answer":{"class":3},"id":"question-1","question":"<sha256>","step":12,"v":1}

A last line that was cut off is dropped: its answer cannot have left. Its step counts all the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledger.files.atomic_file import replace_file, sync_folder
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LOG_FILE: Final = "answers.log"
LINE_MAX: Final = 65_536
NONCE_BYTES: Final = 12
SCREENED: Final = "screened"
_FIELDS: Final = ("answer", "id", "question", "step", "v")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One answer.

    Attributes:
        id: of the question that it answers. question: the SHA-256 of the question.
        step: of the run; 0 where answers cost nothing.
        answer: as it leaves.
    """

    id: str
    question: str
    step: int
    answer: c.Object

    def to_json(self) -> c.Object:
        """As a line has it."""
        return {"answer": self.answer, "id": self.id, "question": self.question, "step": self.step, "v": 1}


class AnswerLog:
    """The answers of one run.

    Attributes:
        by_id: every answer, by its question's id. by_question: the first answer to each question, by its SHA-256.
    """

    def __init__(self, path: Path, bound: c.Object, secret: bytes | None = None) -> None:
        """Read what is there, or begin.

        Args:
            bound: what the lines are of: a sealed one opens for nothing else.
            secret: the key that lines are sealed under; None where answers are public anyway.

        Raises:
            Malformed: for a damaged line, or one of another run. OSError.
        """
        self._path, self._bound = path, c.dump(bound)
        self._aead = None if secret is None else AESGCM(secret)
        self.by_id: dict[str, StoredAnswer] = {}
        self.by_question: dict[str, StoredAnswer] = {}
        whole = self._whole_lines()
        for place, line in enumerate(whole, start=1):
            self._add(self._read(line, f"{LOG_FILE}, line {place}"))

    def _whole_lines(self) -> list[bytes]:
        if not self._path.exists():
            replace_file(self._path, b"")
            sync_folder(self._path.parent)
            return []
        data = self._path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            replace_file(self._path, whole + b"\n" if whole else b"")
        return whole.split(b"\n") if whole else []

    @property
    def answered(self) -> int:
        """How many questions were answered and not screened out."""
        return sum(SCREENED not in answer.answer for answer in self.by_id.values())

    @property
    def steps(self) -> int:
        """How many steps have a line here."""
        return len({answer.step for answer in self.by_id.values()})

    def append(self, answers: Sequence[StoredAnswer]) -> None:
        """On disk when this returns. Raises: OSError."""
        lines = b"".join(self._line(answer) for answer in answers)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for answer in answers:
            self._add(answer)

    def _add(self, answer: StoredAnswer) -> None:
        self.by_id[answer.id] = answer
        self.by_question.setdefault(answer.question, answer)

    def _line(self, answer: StoredAnswer) -> bytes:
        plain = c.dump(answer.to_json())
        if self._aead is None:
            return plain + b"\n"
        nonce = os.urandom(NONCE_BYTES)
        return c.base64url(nonce + self._aead.encrypt(nonce, plain, self._bound)).encode("ascii") + b"\n"

    def _read(self, line: bytes, where: str) -> StoredAnswer:
        if self._aead is not None:
            raw = c.unbase64url(line.decode("ascii", "replace"), where)
            try:
                line = self._aead.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], self._bound)
            except (InvalidTag, ValueError):
                raise Malformed(where, "was not sealed for this run under this key") from None
        members = c.fields(c.parse(line, LINE_MAX, where), where, _FIELDS)
        step = c.integer(members["step"], f"{where}.step", 0, c.INTEGER_MAX)
        answer = c.members(members["answer"], f"{where}.answer")
        return StoredAnswer(
            c.name(members["id"], f"{where}.id"), c.sha256(members["question"], f"{where}.question"), step, answer
        )
