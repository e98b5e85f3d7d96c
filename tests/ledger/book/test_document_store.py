"""Documents beside the log: what no entry refers to is bounded, for each caller and for all together."""

from __future__ import annotations

import pytest

from ledger.book.book import BookBusy
from ledger.book.document_store import (
    BYTES_MAX,
    CONSUMER_BYTES_MAX,
    CONSUMER_DAY_BYTES_MAX,
    CONSUMER_DOCUMENTS_MAX,
    DAY_MS,
    DOCUMENTS_MAX,
    KEEP_MS,
    PROVIDER_BYTES_MAX,
    PROVIDER_DAY_BYTES_MAX,
    PROVIDER_DOCUMENTS_MAX,
    ROOM_BYTES_MAX,
    ROOM_DOCUMENTS_MAX,
    DocumentQuota,
    DocumentQuotaUsed,
    Storer,
)
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from tests.factories.documents import NOW, SMALL, contract
from tests.factories.people import BANK_A, BANK_B, BANK_C, HOSPITAL, SRO
from tests.factories.stored import StoredWorld

MIB = 1 << 20
CONSUMER, PROVIDER = Storer(BANK_A), Storer(HOSPITAL, provides=True)


def fill(quota: DocumentQuota, storer: Storer, size: int = 1, now: int = NOW) -> tuple[int, DocumentQuotaUsed]:
    """Store until it is refused: how many were stored, and the refusal."""
    for number in range(DOCUMENTS_MAX + 1):
        try:
            quota.reserve(f"{storer}{size}{now}{number}", size, now, storer)
        except DocumentQuotaUsed as used:
            return number, used
    raise AssertionError("it is not bounded")


def test_documents_nobody_refers_to_are_bounded() -> None:
    """By number and by bytes; what is referred to, or an hour old, no longer counts."""
    quota = DocumentQuota()
    for number in range(DOCUMENTS_MAX):
        quota.reserve(f"{number}", 1, NOW)
    with pytest.raises(BookBusy, match="that no entry refers to"):
        quota.reserve("more", 1, NOW)
    quota.release({"document": "7", "signatures": ["8", "9"], "other": 1})
    for name in ("a", "b", "c"):
        quota.reserve(name, 1, NOW)
    with pytest.raises(BookBusy):
        quota.reserve("d", 1, NOW + KEEP_MS - 1)
    quota.reserve("d", BYTES_MAX, NOW + KEEP_MS)
    with pytest.raises(BookBusy):
        quota.reserve("e", 1, NOW + KEEP_MS)


def test_a_document_counts_until_an_entry_refers_to_it(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored and entered again and again; what is stored and left is refused at the bound."""
    monkeypatch.setattr("ledger.book.document_store.DOCUMENTS_MAX", 4)
    for version in range(2, 8):
        content = {**contract(BANK_A), "version": version}
        name = f"contract-{version}"
        assert world.submit(world.document("contract", content, name, BANK_A, BANK_A, HOSPITAL))[0].index is not None
    for number in range(4):
        world.book.put_document(b"left %d" % number)
    with pytest.raises(BookBusy):
        world.book.put_document(b"one more")
    assert world.book.put_document(b"left 0")


def test_a_document_counts_once_that_is_stored_again_after_a_failure() -> None:
    """The first attempt was counted, and its write failed."""
    quota = DocumentQuota()
    for _ in range(3):
        quota.reserve("same", BYTES_MAX, NOW)
    quota.release({"document": "same"})
    quota.reserve("other", BYTES_MAX, NOW)
    with pytest.raises(DocumentQuotaUsed):
        quota.reserve("more", 1, NOW)


@pytest.mark.parametrize("size", [1, 256 << 10], ids=["many", "long"])
def test_no_consumer_takes_the_share_of_another(size: int) -> None:
    """However many charges it makes for their clean rooms: a quarter is all it takes, and others store."""
    quota = DocumentQuota()
    stored, used = fill(quota, CONSUMER, size)
    assert (stored, used.own) == (min(CONSUMER_DOCUMENTS_MAX, CONSUMER_BYTES_MAX // size), True)
    rooms = 0
    for run in range(64):
        number, used = fill(quota, Storer(BANK_A, f"run-{run}", pending=True), size)
        assert number <= min(ROOM_DOCUMENTS_MAX, ROOM_BYTES_MAX // size)
        assert used.own
        rooms += number
    assert rooms == stored
    assert "all clean rooms of" in str(used)
    assert (stored + rooms) * 4 <= DOCUMENTS_MAX
    assert (stored + rooms) * size * 4 <= BYTES_MAX
    for other in (
        Storer(BANK_B),
        Storer(BANK_B, "run-b", pending=True),
        PROVIDER,
        Storer(SRO, provides=True),
    ):
        quota.reserve(f"of {other}", size, NOW, other)


@pytest.mark.parametrize("size", [1, 256 << 10], ids=["many", "long"])
def test_consumers_together_leave_a_quarter_to_runs_and_one_to_providers(size: int) -> None:
    """Half is all that their own documents take, and three quarters all that these and their clean rooms do."""
    quota, most = DocumentQuota(), min(DOCUMENTS_MAX, BYTES_MAX // size)
    banks = [f"did:web:bank-{number}.example" for number in range(6)]

    def stored(*storers: Storer) -> int:
        return sum(fill(quota, storer, size)[0] for storer in storers)

    assert stored(*map(Storer, banks)) == most // 2
    for storer in (Storer(BANK_C), Storer(BANK_C, "voided")):
        with pytest.raises(DocumentQuotaUsed, match="that no entry refers to; refer to them, or wait") as used:
            quota.reserve("late", 1, NOW + 1, storer)
        assert (used.value.own, used.value.wait_ms) == (False, KEEP_MS - 1)
    rooms = [Storer(bank, f"run-{run}", pending=True) for bank in banks for run in range(8)]
    assert stored(*rooms) == most // 4
    with pytest.raises(DocumentQuotaUsed) as used:
        quota.reserve("late", 1, NOW, Storer(BANK_C, "run-c", pending=True))
    assert not used.value.own
    assert stored(PROVIDER) == most // 4
    with pytest.raises(DocumentQuotaUsed):
        quota.reserve("operator", 1, NOW)


def test_the_wait_of_a_pool_is_the_time_until_it_has_room() -> None:
    """What providers hold that is older leaves the consumers' half as it is; of the whole it is waited for."""
    quota = DocumentQuota()
    quota.reserve("of a provider", 1, NOW, PROVIDER)
    banks = [Storer(f"did:web:bank-{number}.example") for number in range(4)]
    for later, bank in enumerate(banks, 1):
        fill(quota, bank, now=NOW + later)
    with pytest.raises(DocumentQuotaUsed) as used:
        quota.reserve("late", 1, NOW + 10, Storer(BANK_C))
    assert used.value.wait_ms == KEEP_MS - 9
    with pytest.raises(DocumentQuotaUsed):
        quota.reserve("late", 1, NOW + KEEP_MS, Storer(BANK_C))
    quota.reserve("late", 1, NOW + 10 + used.value.wait_ms, Storer(BANK_C))
    whole = DocumentQuota()
    whole.reserve("of the operator", BYTES_MAX, NOW)
    with pytest.raises(DocumentQuotaUsed) as used:
        whole.reserve("late", 1, NOW + 10, Storer(BANK_C))
    assert used.value.wait_ms == KEEP_MS - 10


def test_a_provider_stores_the_commitments_of_a_partition() -> None:
    """64 documents of 256 KiB and their signatures, before the partition's entry refers to them."""
    quota = DocumentQuota()
    for number in range(64):
        quota.reserve(f"commitments-{number}", 256 << 10, NOW, PROVIDER)
        quota.reserve(f"signature-{number}", 1_000, NOW, PROVIDER)
    stored, used = fill(quota, PROVIDER)
    assert (stored, used.own) == (PROVIDER_DOCUMENTS_MAX - 128, True)
    assert min(PROVIDER_BYTES_MAX, CONSUMER_BYTES_MAX, ROOM_BYTES_MAX) >= POLICY_DOCUMENT_BYTES_MAX


def test_the_wait_is_the_time_until_there_is_room() -> None:
    """To the millisecond, by number and by bytes."""
    quota = DocumentQuota()
    for number in range(CONSUMER_DOCUMENTS_MAX):
        quota.reserve(f"{number}", 1, NOW + number, CONSUMER)
    later = NOW + 1_000
    _, used = fill(quota, CONSUMER, now=later)
    assert used.wait_ms == KEEP_MS - 1_000
    with pytest.raises(DocumentQuotaUsed):
        quota.reserve("again", 1, later + used.wait_ms - 1, CONSUMER)
    quota.reserve("again", 1, later + used.wait_ms, CONSUMER)
    with pytest.raises(DocumentQuotaUsed) as wide:
        quota.reserve("wide", CONSUMER_BYTES_MAX - 20, later, CONSUMER)
    # All but 20 of the oldest leave before it has room, the newest of them 491 ms after the first.
    assert wide.value.wait_ms == KEEP_MS - 1_000 + CONSUMER_DOCUMENTS_MAX - 20
    quota.reserve("wide", CONSUMER_BYTES_MAX - 20, later + wide.value.wait_ms, CONSUMER)


@pytest.mark.parametrize(
    ("storer", "most"),
    [
        (CONSUMER, CONSUMER_DAY_BYTES_MAX),
        (Storer(BANK_A, "run-1", pending=True), CONSUMER_DAY_BYTES_MAX),
        (PROVIDER, PROVIDER_DAY_BYTES_MAX),
    ],
    ids=["consumer", "its clean rooms", "provider"],
)
def test_what_is_referred_to_counts_in_the_day(storer: Storer, most: int) -> None:
    """Each document is entered at once, so none waits; the day's bytes come back evenly, and others keep theirs."""
    quota = DocumentQuota()

    def store(number: int, now: int) -> None:
        quota.reserve(f"{number}", MIB, now, storer)
        quota.release({"evidence": f"{number}"})

    for number in range(most // MIB):
        store(number, NOW)
    with pytest.raises(DocumentQuotaUsed, match="a day is used up") as used:
        store(-1, NOW)
    assert used.value.own
    assert used.value.wait_ms == -(-DAY_MS * MIB // most)
    with pytest.raises(DocumentQuotaUsed):
        store(-1, NOW + used.value.wait_ms - 1)
    store(-1, NOW + used.value.wait_ms)
    quota.reserve("other", MIB, NOW, Storer(BANK_B))
    # A clock that is set back gives nothing, and takes nothing.
    with pytest.raises(DocumentQuotaUsed):
        store(-2, NOW)


def test_an_organisation_s_own_documents_leave_those_of_its_clean_rooms() -> None:
    """Also by the day: another client of it keeps no run from storing its evidence."""
    quota = DocumentQuota()
    for number in range(CONSUMER_DAY_BYTES_MAX // MIB):
        quota.reserve(f"{number}", MIB, NOW, CONSUMER)
        quota.release({"document": f"{number}"})
    with pytest.raises(DocumentQuotaUsed):
        quota.reserve("own", 1, NOW, CONSUMER)
    quota.reserve("evidence", 4_096, NOW, Storer(BANK_A, "run-1", pending=True))


def test_only_what_is_no_refusal_gives_a_document_back(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest that a charge states of what it runs names no document, and a refused command enters none."""
    monkeypatch.setattr("ledger.book.document_store.DOCUMENTS_MAX", 4)
    runs = world.book.put_document(b"what runs")
    charged = world.charge("run-1", run=SMALL, pipeline=runs)
    refused = world.document("contract", {**contract(BANK_A), "version": 7}, "too-early", BANK_A, BANK_A, HOSPITAL)
    outcomes = world.submit(charged, refused)
    assert [one.code.word for one in outcomes] == ["pending", "policy_denied"]
    assert None not in {one.index for one in outcomes}
    with pytest.raises(DocumentQuotaUsed):
        world.book.put_document(b"one more")
