"""What a provider's own key-management system checks before it releases a data key: two entries and their receipts.

The ledger authorises; the key never comes near it. The charge's entry names the clean room's sealing key, the
partitions and the deadline; the key-release entry says that policy, contract and attestation were satisfied. Both are
proven to be in the log by receipts under its key, so a service that is not the log's cannot invent one; and a
service that was set back to an older book is refused (:mod:`client.service.seen_checkpoint`).

    charge, release = fetch(service, "release-run-1", log)
    grant = check(charge, release, log, provider="did:web:hospital.example", now=...)
    envelope = grant.seal({"did:web:hospital.example/digits/2026-q1": data_key})

A charge that names a range of partitions does not list them. Then the entries that opened a partition and both ends of
the range, which :func:`fetch_openings` gets, prove that it lies between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from client.keys.hpke_envelope import DATA_KEY_BYTES, Envelope, EnvelopeInfo
from client.keys.private_file import read_private
from client.service.seen_checkpoint import known_keys
from client.service.service import Service
from ledger.commands.entry import Entry
from ledger.commands.registration.partition import PARTITION
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.key_release import KEY_RELEASE
from ledger.domain.command import parse_ref
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.partition_ranges import PartitionRange, dataset_of_ref
from ledger.log.verification import verify_receipt
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

INDEX_DIGITS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Proven:
    """An entry's bytes and the receipt for them."""

    entry: bytes
    receipt: str


@dataclass(frozen=True, slots=True)
class Grant:
    """Permission to release data keys of ``partitions`` to a sealing key, until ``not_after`` of ``info`` (Unix ms).

    Attributes:
        ranges: the provider's ranges of partitions that the charge names, in words: a partition of one is in
            ``partitions`` once its opening is proven.
    """

    partitions: tuple[str, ...]
    sealing: str
    info: EnvelopeInfo
    ranges: tuple[str, ...] = ()

    def to_json(self) -> c.Object:
        """For programs."""
        granted: c.Object = {"info": self.info.to_json(), "partitions": [*self.partitions], "sealing": self.sealing}
        return {**granted, "ranges": [*self.ranges]} if self.ranges else granted

    def seal(self, data_keys: Mapping[str, bytes]) -> c.Object:
        """The envelope for the clean room: a 32-byte data key for each partition, HPKE. Raises: Malformed."""
        for ref in data_keys:
            if ref not in self.partitions:
                raise Malformed("data_keys", f"names {ref}, which this grant does not cover")
            if len(data_keys[ref]) != DATA_KEY_BYTES:
                raise Malformed("data_keys", f"has no {DATA_KEY_BYTES} bytes for {ref}")
        return Envelope.seal(self.info, self.sealing, data_keys).to_json()


def check(  # noqa: PLR0913, PLR0917 - what a grant rests on
    charge: Proven, release: Proven, log: LogKey, provider: str, now: int, openings: Iterable[Proven] = ()
) -> Grant:
    """The grant that a key release gives to one provider.

    Args:
        charge: the charge's entry, permitted.
        release: the key release's entry, permitted.
        log: a key that the log has or had, as the provider keeps it; it leads to those that :func:`fetch` has seen.
        provider: of the requested partitions.
        now: Unix milliseconds.
        openings: entries that opened partitions, of those in ranges and of the ends of these.

    Raises:
        Malformed: naming what is not proven, not permitted, of another charge, of another provider, or too late.
    """
    charged, at = _entry(charge, "charge", Code.PENDING, log)
    released, index = _entry(release, "key_release", Code.PERMITTED, log)
    requested, run = KEY_RELEASE.read_body(released.command), CHARGE.read_body(charged.command)
    if requested.charge != charged.id or index <= at:
        raise Malformed("release", f"is not of the charge {charged.id}")
    if released.key_id != run.clean_room.signing.thumbprint:
        raise Malformed("release", "is signed by another key than the clean room's")
    listed = [ref for ref in run.partitions if ref.startswith(f"{provider}/")]
    ranges = [one for one in run.ranges if one.dataset.startswith(f"{provider}/")]
    if not listed and not ranges:
        raise Malformed("provider", f"none of the charge's partitions is {provider}'s")
    if now >= run.deadline:
        raise Malformed("release", "is past the charge's deadline: the key stays")
    info = EnvelopeInfo(
        charge=charged.id,
        contract=run.contract,
        entry=index,
        evidence=requested.evidence,
        key_release=released.id,
        not_after=run.deadline,
    )
    partitions = (*listed, *_in_ranges(ranges, openings, at, log))
    return Grant(partitions, run.clean_room.sealing.x, info, tuple(map(str, ranges)))


def _in_ranges(
    ranges: Iterable[PartitionRange], openings: Iterable[Proven], charged: int, log: LogKey
) -> Iterator[str]:
    """The partitions that opened before a charge and between the ends of a range, so proven. Raises: Malformed."""
    entries = [_entry(proven, PARTITION.name, Code.PERMITTED, log) for proven in openings]
    places = {PARTITION.read_body(entry.command).ref: index for entry, index in entries if index < charged}
    for ref, place in places.items():
        within = (one for one in ranges if one.dataset == dataset_of_ref(ref))
        ends = [[places.get(f"{one.dataset}/{name}") for name in (one.first, one.last)] for one in within]
        if any(first is not None and last is not None and first <= place <= last for first, last in ends):
            yield ref


def fetch(service: Service, release: str, log: LogKey) -> tuple[Proven, Proven]:
    """The charge and the key release, as a service reports them that goes on from what this provider has seen of a log.

    Raises:
        SeenCheckpointError: if the service does not prove that it does: it was set back, or shows two histories.
        Refused, Unreachable, Malformed, OSError: Malformed too if the charge is settled: no key is given any more.
    """
    service = service.held_to(log)
    released = _fetch(service, release)
    requested = KEY_RELEASE.read_body(Entry.parse(released.entry).command)
    charged = _fetch(service, requested.charge)
    # What is proven is that the key was released, not that nothing came after it: that the service has to say.
    state = service.charge(requested.charge).get("state")
    if state != ChargeState.PENDING.value:
        raise Malformed("release", f"is of the charge {requested.charge}, which is {state}: the key stays")
    return charged, released


def fetch_openings(service: Service, charge: Proven, partitions: Iterable[str], log: LogKey) -> list[Proven]:
    """The openings of those partitions that a charge names in ranges, and of the ends of these, for :func:`check`.

    Raises:
        SeenCheckpointError: as :func:`fetch`.
        Refused, Unreachable, Malformed, OSError: if a partition was not opened.
    """
    run, service = CHARGE.read_body(Entry.parse(charge.entry).command), service.held_to(log)
    wanted = dict[str, None]()
    for ref in partitions:
        for one in run.ranges:
            if ref not in run.partitions and one.dataset == dataset_of_ref(ref):
                wanted |= dict.fromkeys((ref, f"{one.dataset}/{one.first}", f"{one.dataset}/{one.last}"))
    indices = (c.integer(service.partition(ref)["index"], f"{ref}.index", 0, c.INTEGER_MAX) for ref in wanted)
    return [_fetch(service, Entry.parse(service.entry(index)).id) for index in indices]


def _fetch(service: Service, name: str) -> Proven:
    receipt = service.receipt(name)
    index = receipt.split("\n", 2)[1].removeprefix("index ") if receipt.count("\n") > 1 else ""
    if not index.isascii() or not index.isdecimal() or len(index) > INDEX_DIGITS_MAX:
        raise Malformed("receipt", "has no index on its second line")
    return Proven(service.entry(int(index)), receipt)


def read_data_keys(given: Iterable[str]) -> dict[str, bytes]:
    """Data keys from ``partition=file``, each of exactly 32 bytes and its owner's alone. Raises: Malformed, OSError."""
    keys: dict[str, bytes] = {}
    for pair in given:
        ref, _, path = pair.rpartition("=")
        if not path or parse_ref(ref, "data_key") in keys:
            raise Malformed("data_key", "must be PARTITION=FILE, each partition once")
        keys[ref] = read_private(path, DATA_KEY_BYTES + 1, "data_key")
    return keys


def _entry(proven: Proven, kind: str, wanted: Code, log: LogKey) -> tuple[Entry, int]:
    index, _ = verify_receipt(proven.receipt, proven.entry, known_keys(log))
    entry = Entry.parse(proven.entry)
    if entry.kind != kind or entry.code is not wanted:
        raise Malformed(kind, f"is an entry of kind {entry.kind}, {entry.code.word}")
    return entry, index
