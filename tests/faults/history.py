"""Is what callers were told consistent with the one total order? The log is that order, so one pass tells.

A history is what each caller noted of itself: when it asked (on a clock that all processes share), when it was
answered and what, or that it never was. From the log and the histories follows, as for any strictly serialisable
system whose order is known: every answer stands once, at its index; whatever was answered before something was asked
stands before it; nothing stands that nobody asked for; a refusal holds at its index; and what a reader saw is a prefix,
neither older than what was answered before nor newer than what was asked by then.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from tests.faults.standing import Partition, Vector

NEVER: Final = 1 << 62
UNRECORDED: Final = ("conflict", "malformed", "not_found", "not_authorised", "id_reused", "signature_invalid")

OWN: Final = ("lapse", "statement")
"""The kinds of entry that the book itself makes."""


@dataclass(frozen=True)
class Call:
    """One command as its caller saw it; ``ended`` is NEVER and ``word`` empty without an answer."""

    id: str
    began: int
    ended: int = NEVER
    word: str = ""
    index: int | None = None
    repeated: bool = False


@dataclass(frozen=True)
class Read:
    """One reader: the size and root that it saw."""

    began: int
    ended: int
    size: int
    root: str


class Inconsistent(AssertionError):  # noqa: N818 - what is the case
    """What was told does not fit the log."""


def _require(holds: object, told: str) -> None:
    if not holds:
        raise Inconsistent(told)


def check_history(log: Sequence[bytes], calls: Sequence[Call], reads: Iterable[Read] = (), founded: int = 0) -> None:
    """Hold histories against a log whose first ``founded`` entries nobody noted. Raises: Inconsistent."""
    entries = [json.loads(data) for data in log]
    places = _places(entries)
    began = _answers(entries, places, calls, founded)
    _order(places, calls, began)
    for place in range(founded, len(entries)):
        if entries[place]["body"]["outcome"] == "budget_exhausted":
            _require(not _had_room(entries, place), f"entry {place} was refused, but there was room")
    _unrecorded(entries, calls, began)
    _reads(log, calls, reads, places, began)


def _places(entries: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, entry in enumerate(entries):
        _require(entry["id"] not in places, f"{entry['id']} stands twice, at {places.get(entry['id'])} and {place}")
        places[entry["id"]] = place
    return places


def _answers(
    entries: Sequence[Mapping[str, Any]], places: Mapping[str, int], calls: Sequence[Call], founded: int
) -> dict[str, int]:
    """Every answer stands at its index; since when each id was asked for."""
    began: dict[str, int] = {}
    for call in calls:
        began[call.id] = min(began.get(call.id, NEVER), call.began)
        if call.index is None:
            _require(call.word in {"", *UNRECORDED}, f"{call.id} was answered {call.word} without a place")
            continue
        _require(
            places.get(call.id) == call.index, f"{call.id} was told {call.index}, and stands at {places.get(call.id)}"
        )
        stands = entries[call.index]["body"]["outcome"]
        _require(stands == call.word, f"{call.id} was told {call.word}, and {stands} stands at {call.index}")
    for place, entry in enumerate(entries[founded:], founded):
        _require(entry["id"] in began or entry["kind"] in OWN, f"nobody asked for {entry['id']} at {place}")
    return began


def _order(places: Mapping[str, int], calls: Sequence[Call], began: Mapping[str, int]) -> None:
    """Whatever was answered before something was first asked stands before it."""
    times, newest = _answered(calls)
    for name, since in began.items():
        before = bisect_left(times, since)
        if before and name in places:
            _require(
                newest[before - 1] < places[name],
                f"{name} stands at {places[name]}, and {newest[before - 1]} was answered before it was asked for",
            )


def _answered(calls: Sequence[Call]) -> tuple[list[int], list[int]]:
    """When answers came, in order, and the greatest index that was told by then."""
    answered = sorted((call.ended, call.index) for call in calls if call.index is not None)
    return [ended for ended, _ in answered], list(accumulate((index for _, index in answered), max))


def _unrecorded(entries: Sequence[Mapping[str, Any]], calls: Sequence[Call], began: Mapping[str, int]) -> None:
    """A conflict of what settles a charge: something else that settles it was asked for before the answer."""
    settling: dict[str, list[str]] = {}
    for entry in entries:
        if entry["body"]["outcome"] in {"posted", "voided"}:
            settling.setdefault(entry["body"]["request"]["charge"], []).append(entry["id"])
    for call in calls:
        if call.word == "conflict":
            charge = call.id.partition("-")[2]
            others = [one for one in settling.get(charge, ()) if one != call.id]
            # The book's own lapses are asked for by nobody.
            requested = min((began.get(one, 0) for one in others), default=NEVER)
            _require(requested < call.ended, f"{call.id} was told of a conflict, but nothing had settled {charge}")


def _had_room(entries: Sequence[Mapping[str, Any]], place: int) -> bool:
    """Whether the accounts would have taken a charge that was refused; its price is that of the same plan elsewhere."""
    request, actor = entries[place]["body"]["request"], entries[place]["actor"]
    same = next(
        (one for one in entries if one["body"].get("prices") and one["body"]["request"]["plan"] == request["plan"]),
        None,
    )
    if same is None:
        return False
    (ref,) = request["partitions"]
    partition = _partition(next(one for one in entries if one["kind"] == "partition" and _ref(one) == ref))
    limits = {cap["holder"]: cap["cap"]["epsilon"] for cap in same["body"]["limits"]}
    (segment,) = same["body"]["prices"][ref]
    run: Vector = tuple(request["plan"]["steps"] * (at or 0) for at in segment["price"])
    for holder, epsilon in limits.items():
        by = None if holder == "global" else actor
        total = tuple(map(sum, zip(run, *_charged(entries[:place], ref, by), strict=True)))
        if not partition.fits(total, epsilon):
            return False
    return True


def _charged(entries: Sequence[Mapping[str, Any]], ref: str, actor: str | None) -> list[Vector]:
    """What counts on a partition, of one actor or of all: pending in full, settled for what ran."""
    steps: dict[str, int] = {}
    prices: dict[str, Vector] = {}
    for entry in entries:
        body, outcome = entry["body"], entry["body"]["outcome"]
        if outcome == "pending" and ref in body["prices"] and actor in {None, entry["actor"]}:
            prices[entry["id"]] = tuple(at or 0 for at in body["prices"][ref][0]["price"])
            steps[entry["id"]] = body["request"]["plan"]["steps"]
        elif outcome == "voided":
            steps[body["request"]["charge"]] = 0
        elif outcome == "posted" and entry["kind"] == "post":
            steps[body["request"]["charge"]] = body["request"]["steps"]
    return [tuple(steps[name] * at for at in price) for name, price in prices.items()]


def _ref(entry: Mapping[str, Any]) -> str:
    request = entry["body"]["request"]
    return f"{request['provider']}/{request['dataset']}/{request['partition']}"


def _partition(entry: Mapping[str, Any]) -> Partition:
    caps = {cap["epsilon"]: tuple(cap["capacity"]) for cap in entry["body"]["caps"]}
    return Partition("renyi", entry["body"]["request"]["epsilon"], 0, caps)


def _reads(
    log: Sequence[bytes],
    calls: Sequence[Call],
    reads: Iterable[Read],
    places: Mapping[str, int],
    began: Mapping[str, int],
) -> None:
    roots: dict[int, str] = {}
    leaves = [hashlib.sha256(b"\0" + data).digest() for data in log]
    times, newest = _answered(calls)
    for read in sorted(reads, key=lambda one: one.size):
        _require(read.size <= len(log), f"a reader saw {read.size} entries of {len(log)}")
        if read.size not in roots:
            roots[read.size] = _root(leaves[: read.size]).hex()
        _require(read.root == roots[read.size], f"the root that a reader saw at {read.size} is not that of the entries")
        before = bisect_left(times, read.began)
        least = newest[before - 1] + 1 if before else 0
        _require(read.size >= least, f"a reader saw {read.size} entries after {least} were answered")
        # Lapses and the founding have no asker, so only what was asked too late tells.
        late = min(
            (places[name] for name, since in began.items() if since > read.ended and name in places), default=NEVER
        )
        _require(read.size <= late, f"a reader saw {read.size} entries before the one at {late} was asked for")


def _root(leaves: Sequence[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, word by word."""
    if len(leaves) <= 1:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _root(leaves[:split]) + _root(leaves[split:])).digest()
