"""Every reader of bytes that come from outside: what is damaged or made up is refused by name, or is what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ledger.commands.entry import Entry
from ledger.commands.registry import read_command
from ledger.crypto.detached_jws import Call, call_of, key_id_of, public_key, sign, verify
from ledger.crypto.organisation_keys import parse_organisation_key
from ledger.domain.command import Command, parse_ref
from ledger.log.tiles import Tile
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.plan_reader import parse_plan
from ledger.verifier import Checkpoint, LogKey, Note, VerificationError, verify_receipt
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.mechanisms import parse_mechanism
from tests.ledger.log.memory_log import KEY, Log

PRIVATE: Final = Ed25519PrivateKey.from_private_bytes(bytes([3]) * 32)
PAYLOAD: Final = b'{"kind":"policy"}'
CALL: Final = Call("POST", "https://ledger.example/v1/charges", 1_795_233_600, "run-1")
ENTRY: Final = b"entry 3"
LOG: Final = Log([f"entry {place}".encode() for place in range(7)])
PLAN: Final[c.Object] = {
    "batch_size_expected": 64,
    "clipping_norm": "1",
    "kind": "dp_sgd",
    "noise_multiplier": "4",
    "sampler": {"kind": "poisson", "probability": "0.0625"},
    "steps": 100,
    "v": 1,
}
COMMAND: Final = Command(
    "post", "post-1", "did:web:bank.example", public_key(PRIVATE).thumbprint, {"charge": "run-1", "steps": 3}
)
STORED: Final = Entry(
    "post",
    "post-1",
    7,
    COMMAND.actor,
    COMMAND.key_id,
    {"outcome": "posted", "request": COMMAND.body},
    sign(PRIVATE, COMMAND.to_bytes(), CALL),
)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("", "is not text") from None


@dataclass(frozen=True)
class Reader:
    """A good specimen, how it is read, and, where only these very bytes may be taken, that they alone are."""

    good: bytes
    read: Callable[[bytes], object]
    alone: bool = False

    def takes_rightly(self, data: bytes) -> bool:
        """Read it: whether it is refused by name, or may be taken. Any other error is raised."""
        try:
            self.read(data)
        except (Malformed, VerificationError):
            return True
        return not self.alone or data == self.good


def _json(read: Callable[[c.Json], object], data: bytes) -> object:
    return read(c.parse(data, 70_000))


READERS: Final[dict[str, Reader]] = {
    "command": Reader(COMMAND.to_bytes(), lambda data: read_command(data).body),
    "entry": Reader(STORED.to_bytes(), Entry.parse),
    "plan": Reader(c.dump(PLAN), partial(_json, parse_plan)),
    "mechanism": Reader(
        c.dump(PoissonGaussian(Fraction(1, 100), Fraction(2), 50).to_json()), partial(_json, parse_mechanism)
    ),
    "key": Reader(
        c.dump(public_key(PRIVATE).to_json()), partial(_json, lambda one: parse_organisation_key(one, "key"))
    ),
    "bound signature": Reader(
        sign(PRIVATE, PAYLOAD, CALL).encode(),
        lambda data: verify(_text(data), PAYLOAD, public_key(PRIVATE)),
        alone=True,
    ),
    "plain signature": Reader(
        sign(PRIVATE, PAYLOAD).encode(), lambda data: verify(_text(data), PAYLOAD, public_key(PRIVATE)), alone=True
    ),
    "signature's header": Reader(
        sign(PRIVATE, PAYLOAD, CALL).encode(), lambda data: (key_id_of(_text(data)), call_of(_text(data)))
    ),
    "checkpoint": Reader(LOG.note(7).encode(), lambda data: Checkpoint.open(_text(data), KEY), alone=True),
    "signed note": Reader(LOG.note(7).encode(), lambda data: Note.parse(_text(data))),
    "receipt": Reader(LOG.receipt(3, 7).encode(), lambda data: verify_receipt(_text(data), ENTRY, KEY), alone=True),
    "log key": Reader(KEY.vkey.encode(), lambda data: LogKey.parse(_text(data)), alone=True),
    "tile": Reader(b"tile/0/x001/067.p/5", lambda data: Tile.parse(_text(data))),
    "partition": Reader(b"did:web:hospital.example/digits/2026-q4", lambda data: parse_ref(_text(data), "ref")),
}


@pytest.mark.parametrize("name", READERS)
def test_a_specimen_is_good(name: str) -> None:
    """Undamaged it is read, or nothing below would say anything."""
    assert READERS[name].takes_rightly(READERS[name].good)
    READERS[name].read(READERS[name].good)


@given(st.sampled_from(sorted(READERS)), st.data())
def test_damaged_bytes_are_refused_by_name(name: str, data: st.DataObject) -> None:
    """A slice replaced by any bytes; what is signed is taken only as it is."""
    reader = READERS[name]
    start = data.draw(st.integers(0, len(reader.good)))
    end = data.draw(st.integers(start, min(len(reader.good), start + 8)))
    assert reader.takes_rightly(reader.good[:start] + data.draw(st.binary(max_size=8)) + reader.good[end:])


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_made_up_bytes_are_refused_by_name(name: str, data: bytes) -> None:
    """Bytes and text of any kind."""
    assert READERS[name].takes_rightly(data)


@given(st.sampled_from(sorted(READERS)), st.integers(2, 40), st.sampled_from([b"[", b'{"a":', b"9", b"=", b".", b"\n"]))
def test_what_grows_is_refused_by_name(name: str, doubled: int, piece: bytes) -> None:
    """Depth, digits and lines without end, in place of the whole and after a good beginning."""
    reader = READERS[name]
    many = piece * 2 ** min(doubled, 16)
    for whole in (many, reader.good[: len(reader.good) // 2] + many):
        assert reader.takes_rightly(whole)
