"""Key release: challenge, evidence, decision, entry, sealed key, in that order.

Nothing is sealed before the entry exists; from the entry on the key counts as released, arrived or not.
Whatever fails after it withholds the key, and the same command sent again gets the key if it still may.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from api.http.problems import Problem, ServiceCode
from api.keys.key_store import KeyStore, KeyUnavailable
from client.keys.hpke_envelope import ENVELOPE_VERSION, SUITE, seal
from client.keys.sealed_model import model_ref
from ledger.commands.entry import Entry
from ledger.commands.governance.model_opening import MODEL_OPENING, OpenModel
from ledger.commands.runs.key_release import KEY_RELEASE, ReleaseKey
from ledger.domain.command import Command
from ledger.domain.outcomes import ChargeState, Code
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from api.keys.nonces import Challenges
    from ledger.book.book import Book, Outcome, Submission
    from ledger.domain.facts import Charge, Partition

ENVELOPE_BYTES_MAX: Final = 1 << 20
OPENING_LIFE_MS: Final = 3_600_000
_LOG: Final = logging.getLogger("api.withheld")
_OWN_WORDS: Final = frozenset({ServiceCode.KEY_WITHHELD, Code.CONFLICT})
"""Codes whose detail names a charge or a key, and nothing else."""


class KeyReleases:
    """Takes key-release commands, one at a time."""

    def __init__(self, book: Book, store: KeyStore, challenges: Challenges, clock: Callable[[], int]) -> None:
        """Record in ``book``, take data keys from ``store``, tell time by ``clock`` (milliseconds)."""
        self._book = book
        self._store = store
        self._challenges = challenges
        self._clock = clock
        # A command sent again while its first sending is still being recorded must find the entry, not a
        # nonce that the first has burnt.
        self._turn = threading.Lock()

    def release(self, command: Command, submission: Submission) -> tuple[Outcome, c.Object | None]:
        """The outcome, and the envelope if it was permitted and the store holds the keys. Raises: Problem."""
        kind = MODEL_OPENING if command.kind == MODEL_OPENING.name else KEY_RELEASE
        body: ReleaseKey | OpenModel = kind.read_body(command)
        with self._turn:
            self._check_nonce(command, body)
            outcome = self._book.submit([submission])[0]
        if outcome.code.refused:
            return outcome, None
        if outcome.index is None:
            message = "a permitted key release is an entry"
            raise AssertionError(message)
        return outcome, self._envelope(command, body, outcome.index)

    def _check_nonce(self, command: Command, body: ReleaseKey | OpenModel) -> None:
        with self._book.read() as facts:
            if facts.entry_index(command.id) is not None or body.charge not in facts.charges:
                # The book compares the bytes: the same command gets the same answer, another is refused. And a
                # charge that does not exist has no challenge to answer: the book says so.
                return
        if not self._challenges.burn(body.nonce, body.charge):
            detail = "the nonce answers no open challenge for this charge: ask for another"
            raise Problem(Code.NOT_AUTHORISED, detail, field="body.nonce", id=command.id)

    def _envelope(self, command: Command, body: ReleaseKey | OpenModel, index: int) -> c.Object | None:
        try:
            kept = self._store.kept(command.id)
            if isinstance(body, OpenModel):
                make = self._opening(command, body, index)
            else:
                make = self._release(command, body, index)
            if kept is None:
                sealed = make()
                kept = sealed and self._store.keep(command.id, sealed)
            return _object(kept) if kept else None
        except KeyUnavailable as error:
            raise Problem(ServiceCode.KEY_WITHHELD, str(error), id=command.id, index=index) from None

    def _release(self, command: Command, body: ReleaseKey, index: int) -> Callable[[], bytes | None]:
        """Seals the data keys of a charge that is still open. Raises: Problem, if it is not."""
        with self._book.read() as facts:
            charge = facts.charges[body.charge]
            self._check_still_open(command, charge, index)
            keys = [(ref, facts.partitions[ref]) for ref in charge.partitions]
        return lambda: self._sealed(charge, keys, _info(command, body, charge, index, charge.deadline))

    def _opening(self, command: Command, body: OpenModel, index: int) -> Callable[[], bytes | None]:
        """Seals a model's key to the clean room of an opening, for an hour. Raises: Problem, if that is over."""
        with self._book.read() as facts:
            charge, entry = facts.charges[body.charge], Entry.parse(facts.entry(index))
        until = entry.time + OPENING_LIFE_MS
        if self._clock() >= until:
            raise Problem(
                Code.CONFLICT, "the hour of this opening is over: ask for another", id=command.id, index=index
            )

        def make() -> bytes | None:
            key = self._store.model_key(body.charge, body.model)
            if key is None:
                return None
            info, ref = _info(command, body, charge, index, until), model_ref(body.model)
            sealed: c.Object = {ref: seal(key.reveal(), body.clean_room.sealing.x, info, ref)}
            return c.dump({"info": info, "sealed": sealed, "suite": SUITE, "v": ENVELOPE_VERSION})

        return make

    def _sealed(self, charge: Charge, keys: list[tuple[str, Partition]], info: c.Object) -> bytes | None:
        """Each data key that the store holds, sealed; None if it holds none. Raises: KeyUnavailable."""
        sealed: c.Object = {}
        for ref, partition in keys:
            if not self._store.gives(partition.provider):
                continue
            data_key = self._store.data_key(partition.provider, partition.data_key)
            if data_key is not None:
                sealed[ref] = seal(data_key.reveal(), charge.sealing, info, ref)
        return c.dump({"info": info, "sealed": sealed, "suite": SUITE, "v": ENVELOPE_VERSION}) if sealed else None

    def _check_still_open(self, command: Command, charge: Charge, index: int) -> None:
        if charge.key_release != command.id or charge.key_id != command.key_id:
            detail = f"the key of charge {charge.id} was released to another command"
        elif charge.state is not ChargeState.PENDING:
            detail = f"charge {charge.id} is {charge.state}: its key is not sealed again"
        elif self._clock() >= charge.deadline:
            detail = f"the deadline of charge {charge.id} has passed: its key is not sealed again"
        else:
            return
        raise Problem(Code.CONFLICT, detail, id=command.id, index=index)


def _info(command: Command, body: ReleaseKey | OpenModel, charge: Charge, index: int, until: int) -> c.Object:
    return {
        "charge": charge.id,
        "contract": charge.contract,
        "entry": index,
        "evidence": body.evidence,
        "key_release": command.id,
        "not_after": until,
        "v": ENVELOPE_VERSION,
    }


def _object(data: bytes) -> c.Object:
    try:
        return c.fields(c.parse(data, ENVELOPE_BYTES_MAX), "", ("info", "sealed", "suite", "v"))
    except Malformed as error:
        message = f"the envelope that was kept cannot be read: {error}"
        raise KeyUnavailable(message) from None


@contextmanager
def log_withheld(command: Command) -> Iterator[None]:
    """Log every error that ends the block before the key is handed over, and raise it again.

        {"charge":"run-1","key_release":"release-1","level":"warning","logger":"api.withheld","message":"key withheld",
         "reason":"key_withheld: the data key digits-key of ... cannot be read (FileNotFoundError)",...}

    A reason is made of codes, of the field at fault, and of the service's own words about its store and its book;
    never of what was sent.
    """
    try:
        yield
    except Problem as problem:
        _log_line(command, _reason(problem))
        raise
    except Exception as error:
        _log_line(command, type(error).__name__)
        raise


def _reason(problem: Problem) -> str:
    details = problem.details
    detail = details.detail if problem.code in _OWN_WORDS else ", ".join(reason.code for reason in details.reasons)
    first = " ".join(word for word in (details.code, details.field) if word)
    return f"{first}: {detail}" if detail else first


def _log_line(command: Command, reason: str) -> None:
    told = {"charge": command.body["charge"], "key_release": command.id, "reason": reason}
    _LOG.warning("key withheld", extra=told)
