"""An adversary guesses a shared account by the hashes of a proof of its own; the service shows no such proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.auth.guessable_proofs import ProofReader
from api.auth.stored_documents import ReadDocuments
from api.http.pagination import Cursors
from api.http.problems import Problem
from api.http.snapshots import SnapshotProvider
from api.keys.data_key_store import FileKeyStore
from api.routes.accounts import read_account_proof
from api.routes.progress import Progress
from api.routes.proposed_contracts import Proposals
from api.routes.read_routes import ReadContext, View
from ledger.book.state.state_statements import StatedTree
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.roles import SRO as GOVERNS
from ledger.domain.roles import TDC, TDP
from ledger.state_tree.leaves import StatedRecord, leaf_name, salted
from ledger.state_tree.sparse_tree import Path as Way
from ledger.state_tree.sparse_tree import SparseTree
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey, state_entry_secret, state_key
from ledger.wire import canonical_json as c
from tests.factories.documents import plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG_KEY, ORIGIN, SRO
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.state.test_account_proof import state_anew

DIGITS: Final = f"{HOSPITAL}/digits"
ALIKE_BITS: Final = 16
"""So many bits of both accounts' places are alike that no other of a small book lies between them."""


def _place(partition: str, holder: str) -> int:
    return int.from_bytes(state_key(leaf_name("accounts", (partition, holder)))[:8], "big")


def _neighbours(node: int) -> str:
    """A partition whose shared account lies beside the account of a lineage."""
    names = (f"p{number}" for number in range(1_000_000))
    return next(
        one
        for one in names
        if (_place(f"{DIGITS}/{one}", GLOBAL) ^ _place(f"{DIGITS}/{one}", holder_of(node))) >> (64 - ALIKE_BITS) == 0
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoredWorld, str]]:
    """Two banks and a partition that both may charge, of which Bank A's account and everyone's are neighbours."""
    with open_world(tmp_path_factory.mktemp("probe")) as probe, probe.read() as facts:
        name = _neighbours(facts.organisations[BANK_A].node)
    with open_world(tmp_path_factory.mktemp("guessed"), founded=False) as world:
        opened: dict[str, c.Object] = {"2026-q4": {}, name: {"data_key": f"key-{name}"}}
        world.found(*world.founding_with(partitions=opened))
        world.book.close()
        world.book = world.open(statements=True)
        yield world, f"{DIGITS}/{name}"


def _charged(world: StoredWorld, ref: str, bank: str, steps: int, name: str) -> None:
    (done,) = world.submit(world.charge(name, bank, run=plan(steps=steps), partitions=(ref,)))
    assert done.code.word == "pending", done


def _stated(world: StoredWorld, facts: Snapshot) -> StatedTree:
    stated = world.book.stated_tree(facts.size)
    assert stated is not None
    return stated


def _guessed(way: Way, key: bytes, guess: StatedRecord) -> bool:
    """Whether the lowest hash beside a way is that of a guessed record alone."""
    depth = max(way.siblings)
    alone = SparseTree().updated([], [guess.leaf]).path(key)
    return alone.siblings == {depth: way.siblings[depth]}


def _record(tree: SparseTree, ref: str) -> StatedRecord:
    leaf = tree.path(state_key(leaf_name("accounts", (ref, GLOBAL)))).leaf
    assert leaf is not None
    content: StatedRecord = leaf.content
    return content


def test_a_bank_guesses_what_it_shares_unless_another_s_entry_came_last(world: tuple[StoredWorld, str]) -> None:
    """Its own entry salts the shared account, and the truth fits the hash beside its own: no proof. Then there is one.

    Who sees everything gets a proof at any time, and who shares with no one.
    """
    book, ref = world
    bank, sro = Caller(BANK_A, (TDC,)), Caller(SRO, (GOVERNS,))
    for steps, name, of, shown in (
        (10, "alone", BANK_A, True),
        (23, "theirs", BANK_B, True),
        (9, "own", BANK_A, False),
    ):
        _charged(book, ref, of, steps, name)
        state_anew(book)
        with book.book.read() as facts:
            stated, holder = _stated(book, facts), holder_of(facts.organisations[BANK_A].node)
            key = state_key(leaf_name("accounts", (ref, holder)))
            secret = state_entry_secret(facts.entry(facts.entry_index(name) or 0))
            true = _record(stated.tree, ref)
            way = stated.tree.path(key)
            assert _guessed(way, key, salted("accounts", (ref, GLOBAL), true.value, secret))
            false = true.value._replace(pending=true.value.posted)
            assert not _guessed(way, key, salted("accounts", (ref, GLOBAL), false, secret))
            reader = ProofReader(bank, facts, book.clock.now, stated)
            assert reader.can_guess(ref, [holder]) is not shown, name
            assert not ProofReader(sro, facts, book.clock.now, stated).can_guess(ref, [holder])
            assert not ProofReader(Caller(HOSPITAL, (TDP,)), facts, book.clock.now, stated).can_guess(ref, [holder])
    _charged(book, ref, BANK_B, 5, "last")
    state_anew(book)
    with book.book.read() as facts:
        assert not ProofReader(bank, facts, book.clock.now, _stated(book, facts)).can_guess(ref, [holder])


def test_the_route_shows_no_such_proof(world: tuple[StoredWorld, str], tmp_path: Path) -> None:
    """403 with the reason for the bank; the SRO gets it."""
    book, ref = world
    for bank, name in ((BANK_B, "theirs-first"), (BANK_A, "then-own")):
        _charged(book, ref, bank, 3, name)
    state_anew(book)
    clock, store, log = book.clock, FileKeyStore(tmp_path), LogKey(ORIGIN, LOG_KEY.public_key().public_bytes_raw())
    snapshots, known = SnapshotProvider(book.book, clock), Progress(clock)
    context = ReadContext(
        snapshots,
        Cursors(b"k" * 32),
        store,
        known,
        log,
        book.book.stated_tree,
        CallerQuotas(),
        Proposals("http://x", clock),
        ReadDocuments(CallerQuotas()),
    )
    with book.book.read() as facts:
        holder = holder_of(facts.organisations[BANK_A].node)
        with pytest.raises(Problem, match="could be guessed") as refused:
            read_account_proof(View(facts, Caller(BANK_A, (TDC,)), context, None, None), holder, ref)
        shown = read_account_proof(View(facts, Caller(SRO, (GOVERNS,)), context, None, None), holder, ref)
    assert (refused.value.status, refused.value.details.field) == (403, "holder")
    assert bytes(shown.body).startswith(b"{")
