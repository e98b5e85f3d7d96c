"""Entries that are like one read before but for a few names, times and keys: only those are read.

Nearly every entry of a long book is a charge or what one was settled for, and says word for word what others said. So
its bytes are cut into what may differ, the *holes*, and the rest. If an entry with that same rest was read strictly,
and each hole holds what the strict reader would take there in its one spelling, then this entry is canonical too and
says the same but for the holes. Whatever does not fit, for whatever reason, is read strictly.

    {"actor":"did:web:bank-a.example","body":{"outcome":"posted","request":{"charge":"▒","steps":▒}},"id":"▒",
     "key_id":"▒","kind":"post","signature":"▒","time":▒,"v":1}
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ledger.crypto.detached_jws import SIGNATURE_BYTES_MAX
from ledger.crypto.public_keys import PublicKey, is_small_order
from ledger.domain.commands import TIME_MAX
from ledger.domain.entries import ENTRY_BYTES_MAX, Entry
from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.transitions.apply import said
from ledger.transitions.apply_charges import Charged, Said, Settled

KEPT_MAX: Final = 4_096
"""Rests that are remembered with what they say; all are forgotten when there are more."""
REST_BYTES_MAX: Final = 4_096
"""Longer ones are not remembered."""


class Read(NamedTuple):
    """An entry's own id, kind and time, and what applying it takes."""

    id: str
    kind: str
    time: int
    said: Said | Entry | None


# What the strict reader takes for a client's id, 32 bytes, a digest, a count and, of more, a signature.
_NAME: Final = rb"([A-Za-z0-9][A-Za-z0-9._~-]{0,127})"
_KEY: Final = rb"([A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])"
_INTEGER: Final = rb"(0|[1-9][0-9]{0,14})"
_SIGNATURE: Final = rb"[!#-\[\]-~]{1,%d}" % SIGNATURE_BYTES_MAX
_END: Final = rb'"id":"%s","key_id":"%s","kind":"%%s","signature":"%s","time":%s,"v":1\}' % (
    _NAME,
    _KEY.replace(b"(", b"(?:"),
    _SIGNATURE,
    _INTEGER,
)
_POST: Final = re.compile(
    rb'(\{"actor":"[^"\\]{1,255}","body":\{"outcome":"[a-z_]{1,20}","request":)\{"charge":"%s","steps":%s\}\},%s'
    % (_NAME, _INTEGER, _END % b"post")
)
_ROOM: Final = b'"request":{"clean_room":{"sealing":{"crv":"X25519","kty":"OKP","x":"'
_REST: Final = re.compile(
    rb'%s"\},"signing":\{"crv":"Ed25519","kty":"OKP","x":"%s"\}\},("contract":"[0-9a-f]{64}",)"deadline":%s(,.*)\}\},%s'
    % (_KEY, _KEY, _INTEGER, _END % b"charge")
)
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')


def read(data: bytes) -> Read:
    """Read the stored bytes of an entry, to apply it. Raises: Malformed."""
    if (post := _POST.fullmatch(data)) is not None:
        rest: tuple[bytes, ...] = (post[1],)
        like = _KEPT.get(rest)
        found = None if like is None else _settled(like, post)
    elif (charge := _charge(data)) is not None:
        before, cut = charge
        rest = before, cut[3], cut[5]
        like = _KEPT.get(rest)
        found = None if like is None else _charged(like, cut)
    else:
        return _strictly(data)
    if found is not None and len(data) <= ENTRY_BYTES_MAX:
        return found
    strict = _strictly(data)
    known = like is not None or sum(map(len, rest)) > REST_BYTES_MAX
    if not known and isinstance(strict.said, Charged | Settled) and (post or _is_of_body(rest[0])):
        if len(_KEPT) >= KEPT_MAX:
            _KEPT.clear()
        _KEPT[rest] = strict.said
    return strict


_KEPT: Final[dict[tuple[bytes, ...], Charged | Settled]] = {}


def _strictly(data: bytes) -> Read:
    entry = Entry.parse(data)
    return Read(entry.id, entry.kind, entry.time, said(entry))


def _charge(data: bytes) -> tuple[bytes, re.Match[bytes]] | None:
    before, found, after = data.partition(_ROOM)
    cut = _REST.fullmatch(after) if found else None
    return None if cut is None else (before, cut)


def _is_of_body(before: bytes) -> bool:
    """Whether a request that follows is the body's own, and no object that looks like one deeper inside."""
    # After an opening or a comma a quote begins a name; anywhere else it may be the end of one, with a quote in it.
    if not before.endswith((b"{", b",")):
        return False
    bare = _TEXT.sub(b"", before)
    return bare.count(b"{") - bare.count(b"}") == 2 and bare.count(b"[") == bare.count(b"]")


def _settled(like: Charged | Settled, cut: re.Match[bytes]) -> Read | None:
    _, charge, count, name, time_ms = cut.groups()
    steps, time = int(count), int(time_ms)
    if not isinstance(like, Settled) or steps > STEPS_MAX or time > TIME_MAX:
        return None
    return Read(name.decode(), "post", time, Settled(charge.decode(), steps, like.outcome))


def _charged(like: Charged | Settled, cut: re.Match[bytes]) -> Read | None:
    sealing, signing, _, until, _, identity, time_ms = cut.groups()
    deadline, time, room, key = int(until), int(time_ms), sealing.decode(), PublicKey("Ed25519", signing.decode())
    if not isinstance(like, Charged) or deadline > TIME_MAX or time > TIME_MAX:
        return None
    if is_small_order("X25519", room) or is_small_order("Ed25519", key.x):
        return None
    _, contract, actor, author, partitions, plan, steps, _, _, _, _, prices, recipients, base, pipeline = like
    name, key_id = identity.decode(), key.thumbprint
    filled = Charged(
        name,
        contract,
        actor,
        author,
        partitions,
        plan,
        steps,
        key_id,
        key.x,
        room,
        deadline,
        prices,
        recipients,
        base,
        pipeline,
    )
    return Read(name, "charge", time, filled)
