"""Key release: challenge, evidence, decision, entry, sealed key, in that order.

Any process of a book takes the command. The log decides which of two commands with one nonce was first: a release
looks before it is decided, and the writer, who alone knows what is recorded in between, does not record the later one.
Then it looks at its entry, which an older program may have recorded.
Nothing is sealed before the entry exists; from the entry on the key counts as released, arrived or not.
Whatever fails after it withholds the key, and the same command sent again gets the key if it still may.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from api.http.problems import Problem, ServiceCode
from api.keys.data_key_store import KeyStore, KeyUnavailable, Secret
from api.keys.nonces import Challenges, burnt_at
from client.keys.hpke_envelope import Envelope, EnvelopeInfo
from client.keys.sealed_model import model_ref
from ledger.book.book import Book, Outcome, Submission
from ledger.commands.decide import verify_signer
from ledger.commands.entry import Entry
from ledger.commands.governance.model_opening import MODEL_OPENING, OpenModel
from ledger.commands.registry import KINDS
from ledger.commands.runs.key_release import KEY_RELEASE, ReleaseKey
from ledger.commands.runs.run_generation import TakeGeneration
from ledger.commands.runs.settlement import Post
from ledger.domain.charge_record import Charge
from ledger.domain.command import Command
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts
from ledger.domain.outcomes import ChargeState, Code
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import read, write

ENVELOPE_BYTES_MAX: Final = 1 << 20
OPENING_LIFE_MS: Final = 3_600_000


class _Answering(Protocol):
    """A body with a nonce that answers a challenge."""

    @property
    def charge(self) -> str:
        """The charge that the challenge is for."""

    @property
    def nonce(self) -> str | None:
        """The nonce."""


_LOG: Final = logging.getLogger("api.withheld")
_OWN_WORDS: Final = frozenset({ServiceCode.KEY_WITHHELD, Code.CONFLICT})
"""Codes whose detail names a charge or a key, and nothing else."""


class KeyReleases:
    """Takes key-release commands."""

    def __init__(self, book: Book, store: KeyStore, challenges: Challenges) -> None:
        """Record in ``book``, whose time it is, and take data keys from ``store``."""
        self._book = book
        self._store = store
        self._challenges = challenges

    def release(self, command: Command, submission: Submission) -> tuple[Outcome, c.Object | None]:
        """The outcome, and the envelope if it was permitted and the store holds the keys. Raises: Problem."""
        kind = MODEL_OPENING if command.kind == MODEL_OPENING.name else KEY_RELEASE
        body: ReleaseKey | OpenModel = kind.read_body(command)
        outcome = self._recorded(command, body, submission)
        if outcome.code.refused:
            return outcome, None
        assert outcome.index is not None
        return outcome, self._envelope(command, body, outcome.index)

    def answer_challenge(self, command: Command, submission: Submission) -> Outcome:
        """The outcome of another command that answers a challenge: it releases no key. Raises: Problem."""
        body: TakeGeneration | Post = KINDS[command.kind].read_body(command)
        return self._recorded(command, body, submission)

    def _recorded(self, command: Command, body: _Answering, submission: Submission) -> Outcome:
        self._check_nonce(submission, body)
        # Between the look and the entry another command may use the nonce up: then this one is not recorded.
        outcome = self._book.submit([replace(submission, nonce_once=True)])[0]
        if not outcome.code.refused:
            assert outcome.index is not None
            self._check_first(command, body, outcome.index, repeated=outcome.repeated)
        return outcome

    def _check_nonce(self, submission: Submission, body: _Answering) -> None:
        command = submission.command
        with self._book.read() as facts:
            if facts.entry_index(command.id) is not None or body.charge not in facts.charges:
                # The book compares the bytes: the same command gets the same answer, another is refused. And a
                # charge that does not exist has no challenge to answer: the book says so.
                return
            issued = self._challenges.read(body.nonce or "", body.charge)
            if issued and self._challenges.is_open(issued):
                # To look for the nonce reads the log since it was issued: not for a command that is not the signer's.
                _check_signature(facts, submission)
                if burnt_at(facts, body.nonce or "", issued) is None:
                    return
        detail = "the nonce answers no open challenge for this charge: request another"
        raise Problem(Code.NOT_AUTHORISED, detail, field="body.nonce", id=command.id)

    def _check_first(self, command: Command, body: _Answering, index: int, *, repeated: bool) -> None:
        """Raises: Problem, unless the command's entry is the first with its nonce."""
        issued = self._challenges.read(body.nonce or "", body.charge)
        if issued is None and repeated:
            # Recorded by a service with another secret, which knew the nonce.
            return
        with self._book.read() as facts:
            first = issued and burnt_at(facts, body.nonce or "", issued)
        if first != index:
            detail = "the nonce was used up before this entry: it opens nothing"
            raise Problem(Code.CONFLICT, detail, field="body.nonce", id=command.id, index=index)

    def _envelope(self, command: Command, body: ReleaseKey | OpenModel, index: int) -> c.Object | None:
        try:
            stored = self._store.stored_envelope(command.id)
            charge, until = self._open_until(command, body, index)
            if stored is None:
                sealed = self._seal_keys(command, body, charge, index, until)
                stored = sealed and self._store.store_envelope(command.id, sealed)
            return _object(stored) if stored else None
        except KeyUnavailable as error:
            raise Problem(ServiceCode.KEY_WITHHELD, str(error), id=command.id, index=index) from None

    def _open_until(self, command: Command, body: ReleaseKey | OpenModel, index: int) -> tuple[Charge, int]:
        """The charge, and when its key is no longer sealed: at its deadline, or an hour after a model's opening.

        Raises: Problem, if that is over; BookPaused.
        """
        with self._book.read() as facts:
            charge, entry = facts.charges[body.charge], Entry.parse(facts.entry(index))
        if isinstance(body, ReleaseKey):
            # The recipient of the key is read from the signed entries: a row may have been changed.
            charged = self._book.open_charge(body.charge)
            charge = charge if charged is None else charged[0]
            self._check_still_open(command, charge, index, is_open=charged is not None)
            return charge, charge.deadline
        until = entry.time + OPENING_LIFE_MS
        # Before a clock correction the book's time may have been ahead.
        if not entry.time <= self._book.now() < until:
            detail = "the hour of this opening is over: request another"
            raise Problem(Code.CONFLICT, detail, id=command.id, index=index)
        return charge, until

    def _seal_keys(
        self, command: Command, body: ReleaseKey | OpenModel, charge: Charge, index: int, until: int
    ) -> bytes | None:
        """Each key that the store holds, sealed; None if it holds none. Raises: KeyUnavailable."""
        info = EnvelopeInfo(
            charge=charge.id,
            contract=charge.contract,
            entry=index,
            evidence=body.evidence,
            key_release=command.id,
            not_after=until,
        )
        if isinstance(body, OpenModel):
            recipient = body.clean_room.sealing.x
            keys = {model_ref(body.model): self._store.model_key(body.charge, body.model)}
        else:
            recipient, keys = charge.sealing, self._data_keys(charge)
        revealed = {ref: key.reveal() for ref, key in keys.items() if key is not None}
        return write(Envelope.seal(info, recipient, revealed)) if revealed else None

    def _data_keys(self, charge: Charge) -> dict[str, Secret | None]:
        """The data keys of a charge's partitions, of providers that give them out here. Raises: KeyUnavailable."""
        charged = self._book.open_charge(charge.id)
        return {
            one.ref: self._store.data_key(one.provider, one.data_key)
            for one in (charged[1] if charged else ())
            if self._store.gives(one.provider)
        }

    def _check_still_open(self, command: Command, charge: Charge, index: int, *, is_open: bool) -> None:
        if charge.key_release != command.id or charge.key_id != command.key_id:
            detail = f"the key of charge {charge.id} was released to another command"
        elif charge.state is not ChargeState.PENDING or not is_open:
            detail = f"charge {charge.id} is {charge.state}: its key is not sealed again"
        elif self._book.now() >= charge.deadline:
            detail = f"the deadline of charge {charge.id} has passed: its key is not sealed again"
        else:
            return
        raise Problem(Code.CONFLICT, detail, id=command.id, index=index)


def _check_signature(facts: Facts, submission: Submission) -> None:
    """Raises: Problem, unless a command verifies with the key that it names."""
    try:
        verify_signer(facts, submission.pending, log_x="")
    except Rejected as refusal:
        decided = refusal.decided
        raise Problem(decided.code, decided.detail, field=decided.field, id=submission.command.id) from None


def _object(data: bytes) -> c.Object:
    try:
        return read(Envelope, data, ENVELOPE_BYTES_MAX).to_json()
    except Malformed as error:
        raise KeyUnavailable(f"the stored envelope cannot be read: {error}") from None


@contextmanager
def log_withheld(command: Command) -> Iterator[None]:
    """Log every error that ends the block before the key is handed over, and raise it again.

        {"charge":"run-1","key_release":"release-1","level":"warning","logger":"api.withheld","message":"key withheld",
         "reason":"key_withheld: the data key digits-key of ... cannot be read (FileNotFoundError)",...}

    A reason is made of codes, of the invalid field, and of the service's own words about its store and its book;
    never of what was sent.
    """
    try:
        yield
    except Exception as error:
        reason = _reason(error) if isinstance(error, Problem) else type(error).__name__
        fields = {"charge": command.body["charge"], "key_release": command.id, "reason": reason}
        _LOG.warning("key withheld", extra=fields)
        raise


def _reason(problem: Problem) -> str:
    details = problem.details
    detail = details.detail if problem.code in _OWN_WORDS else ", ".join(reason.code for reason in details.reasons)
    first = " ".join(word for word in (details.code, details.field) if word)
    return f"{first}: {detail}" if detail else first
