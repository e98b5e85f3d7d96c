"""Everything that decides has a leaf, and a leaf gives away nothing but its own record."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ledger import verifier
from ledger.book.state.open_state import OpenState
from ledger.book.state.proven_entries import ProvenEntries
from ledger.book.state.settled_records import SettledRecords
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.domain.facts import Account, Span
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import END
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss
from ledger.state_tree.journal import StateChanges, StateJournal
from ledger.state_tree.leaves import CUTS, LOG, PARTS, SPANS, StatedRecord, leaf_name, salted
from ledger.state_tree.sparse_tree import PIECE, SparseTree
from ledger.store.documents import StoredDocuments
from ledger.verifier import STATE_DEPTH, state_entry_secret, state_key, state_leaf_hash, state_salt
from ledger.wire import canonical_json as c
from ledger.wire.records import write
from tests.factories.documents import PARTITION, plan, stream
from tests.factories.key_commands import name_quorum, new_signer, rotate
from tests.factories.people import BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.audited import open_for_audit, report, run

SECRET: Final = bytes(32)
OTHERS: Final = {LOG, SPANS, CUTS}


def applied(entries: Iterable[bytes]) -> tuple[MemoryState, StateJournal]:
    """The state that entries make, and what they changed."""
    journal = StateJournal()
    parts: dict[str, Any] = {**journal.parts()}
    state = MemoryState(**parts)
    for index, data in enumerate(entries):
        entry = Entry.parse(data)
        apply(state, entry, index)
        journal.record(entry.id, entry.kind, entry.time, state_entry_secret(data))
    return state, journal


def folded(entries: Iterable[bytes]) -> tuple[MemoryState, SparseTree]:
    """The state that entries make, and its tree."""
    state, journal = applied(entries)
    return state, journal.advance(journal.size).applied(SparseTree())


def lived(world: StoredWorld) -> list[bytes]:
    """The entries of a book in which much has happened."""
    open_for_audit(world)
    run(world, "audited")
    report(world, "audited")
    world.submit(*(world.charge(f"run-{n}") for n in range(4)), world.charge("run-4", recipients=[BANK_B]))
    world.submit(world.settle("run-0", 40), world.void("run-1"), world.release("run-2"))
    decree: c.Object = {"partition": PARTITION, "holder": "global", "reason": "records were counted twice"}
    world.submit(world.command(SRO, "decree", decree, "decree"), world.merger())
    rotate(world, new_signer("bank a 2"))
    name_quorum(world, HOSPITAL, BANK_B, extends=True)
    world.submit(world.document("stream", stream(), "stream", HOSPITAL, HOSPITAL))
    with world.book.read() as facts:
        return [*facts]


def test_every_part_of_the_state_has_leaves() -> None:
    """A part that is added to the state and is no mapping, or stands aside as documents do, fails here."""
    assert {one.name for one in fields(MemoryState)} - PARTS.keys() == {"documents"}
    assert PARTS.keys() - {one.name for one in fields(MemoryState)} == OTHERS
    # Of what the writer holds beside these parts: the sums and the names have leaves of their own, and the rest is
    # made of the parts (what is open, what changed, what was read) or is where documents and entries are read. Of the
    # accounts the state has the part itself, and what is put down there before anyone reads it.
    state = OpenState(StoredDocuments(), SettledRecords(), ProvenEntries())
    made = {"open_charges", "open_keys", "parts", "noted", "folding", "_authored", "_published"}
    made |= {"_accounts", "account_sums", "note_sums", "_orders", "_within"}
    assert vars(state).keys() - PARTS.keys() - made == {"sums", "_records", "documents"}
    assert state.parts.keys() == PARTS.keys() - OTHERS
    # `revised` names the rows that are to be compared again, and decides nothing.
    assert vars(SettledRecords()).keys() == {"ids", "changes", "keys", "position", "charges", "state", "revised"}


def test_the_leaves_are_the_records_that_decide(tmp_path: Path) -> None:
    """Each record of each part, but for settled charges and the keys of their clean rooms; and the log's own leaf."""
    with open_world(tmp_path) as world:
        state, tree = folded(lived(world))
    wanted = {(LOG, "")}
    for name in PARTS.keys() - OTHERS:
        wanted |= {(name, key) for key in getattr(state, name)}
    settled = {one.id: one.key_id for one in state.charges.values() if one.state is not ChargeState.PENDING}
    assert len(settled) == 3
    wanted -= {("charges", name) for name in settled} | {("keys", name) for name in settled.values()}
    every = {(one.content.part, one.content.key): one.content for one in tree}
    assert {part for part, _ in every} == PARTS.keys()
    found = {place: one for place, one in every.items() if place[0] not in {SPANS, CUTS}}
    assert found.keys() == wanted
    assert all(getattr(state, part)[key] == one.value for (part, key), one in found.items() if part != LOG)
    runs = {author: one.value for (part, author), one in every.items() if part == SPANS}
    assert sum(one.runs for one in runs.values()) == len(state.charges)
    charges = [one for one in state.charges.values() if one.recipients]
    assert {key for part, key in every if part == CUTS} == {one.index + 1 for one in charges}
    for node in state.nodes:
        sums = {ref: pair for (author, _), one in runs.items() if author == node for ref, *pair in one.sums}
        assert sums == {ref: pair for ref, *pair in state.exposures([Span(node, 0, END)])}


def test_every_name_that_is_used_is_covered(tmp_path: Path) -> None:
    """Ids, charges that are changed and keys that are bound: the log's leaf by its definition, from the bytes alone."""
    with open_world(tmp_path) as world:
        entries = lived(world)
    _, tree = folded(entries)
    named = sha256()
    for index, data in enumerate(entries):
        entry: dict[str, Any] = json.loads(data)
        request, names = entry["body"]["request"], [(0, entry["id"])]
        if entry["kind"] in {"post", "void", "key_release"}:
            names.append((1, request["charge"]))
        if entry["kind"] == "charge":
            names.append((2, CleanRoom(entry["id"]).signer.key_id))
        digests = sorted((kind, sha256(name.encode()).digest()[:8]) for kind, name in names)
        named.update(b"".join(bytes([kind]) + digest + index.to_bytes(8) for kind, digest in digests))
    leaf = tree.path(state_key(b'["log",""]')).leaf
    assert leaf is not None
    assert leaf.content.value == (named.hexdigest(), json.loads(entries[-1])["time"])


def test_the_names_of_one_entry_have_one_order(tmp_path: Path) -> None:
    """A clock correction changes every pending charge: in whatever order it does, its names are covered alike."""
    with open_world(tmp_path) as world:
        entries = lived(world)
    covered = set()
    for step in (1, -1):
        state, journal = applied(entries)
        pending = [one.id for one in state.charges.values() if one.state is ChargeState.PENDING]
        assert len(pending) > 1
        for name in pending[::step]:
            state.change_charge(name, lambda charge: charge._replace(deadline=charge.deadline - 1))
        journal.record("correction", "clock_correction", 0, SECRET)
        covered.add(journal.advance(journal.size).records[LOG, ""])
    assert len(covered) == 1


def test_each_record_changes_the_root(tmp_path: Path) -> None:
    """Whatever field of whatever record another state has, its root is another."""
    with open_world(tmp_path) as world:
        _, tree = folded(lived(world))
    for leaf in tree:
        one: StatedRecord = leaf.content
        other = [*one.value, ""] if isinstance(one.value, tuple) else [one.value, ""]
        changed = one._replace(value=other).leaf
        assert tree.updated([], [changed]).root != tree.root
        assert tree.updated([leaf.key], []).root != tree.root


def test_a_salt_is_of_the_entry_and_of_the_name() -> None:
    """The definition, written out: what an auditor who has the entries computes."""
    entry, name = b'{"an":"entry"}', leaf_name("accounts", (PARTITION, "global"))
    assert name == b'["accounts",["%s","global"]]' % PARTITION.encode()
    secret = state_entry_secret(entry)
    salt = state_salt(secret, name)
    assert salted("accounts", (PARTITION, "global"), 1, secret).salt == salt
    assert len({secret, salt, verifier.leaf_hash(entry), state_salt(secret, name + b" ")}) == 4


def account(holder: str, posted: int) -> Account:
    """An account at one coordinate."""
    return Account(PARTITION, holder, Loss((posted,), (0,)), Loss((0,), (0,)))


def test_hashing_lets_others_go_first_every_few_records() -> None:
    """Counted in hashes between two rests, of the leaves and of the tree; and the tree is the same without any."""
    many = 500
    records: dict[tuple[str, Any], tuple[Any, bytes]] = {
        ("accounts", (PARTITION, f"lineage:{n}")): (account(f"lineage:{n}", n), bytes(32)) for n in range(many)
    }
    changes, counts = StateChanges(many, records), [0]

    def count(_frame: object, event: str, called: object) -> None:
        if event == "c_call" and called is sha256:
            counts[-1] += 1

    sys.setprofile(count)
    try:
        tree = changes.applied(SparseTree(), lambda: counts.append(0))
    finally:
        sys.setprofile(None)
    assert tree.root == changes.applied(SparseTree()).root
    # A record is hashed from its place to the root at most, once for its key, its salt, its leaf and its place.
    assert sum(counts) > many * 32
    assert max(counts) <= PIECE * (STATE_DEPTH + 4)


def test_ten_thousand_proofs_tell_no_neighbours_balance() -> None:
    """With all hashes of all proofs of others, and every balance to try, none fits without the entry's bytes.

    The trial is no straw man: with the salt the same search finds the balance at once.
    """
    balance, many = 1_234, 10_000
    secrets = [state_entry_secret(b"entry %d" % n) for n in range(many)]
    places = [(PARTITION, f"lineage:{n}") for n in range(many)]
    records = {("accounts", place): (account(place[1], n), secrets[n]) for n, place in enumerate(places)}
    victim = PARTITION, "lineage:10000"
    secret = state_entry_secret(b"an entry that only the victim reads")
    records["accounts", victim] = account(victim[1], balance), secret
    tree = StateChanges(many + 1, records).applied(SparseTree())
    seen = set[bytes]()
    for place in places:
        path = tree.path(state_key(leaf_name("accounts", place)))
        seen |= {*path.siblings.values(), *(one.hash for one in path.beside)}
    key, name = state_key(leaf_name("accounts", victim)), leaf_name("accounts", victim)

    def fits(salt: bytes) -> list[int]:
        found = []
        for posted in range(2_000):
            leaf = state_leaf_hash(salt, write(account(victim[1], posted)))
            alone = (verifier.state_root(key, [(key, leaf)], {}), verifier.state_place_hash([(key, leaf)]))
            if leaf in seen or seen & {*alone, *chain(key, leaf)}:
                found.append(posted)
        return found

    assert fits(state_salt(secret, name)) == [balance]
    tried = [bytes(32), state_salt(SECRET, name), *(state_salt(one, name) for one in secrets[:3])]
    assert [fits(salt) for salt in tried] == [[]] * len(tried)


def chain(key: bytes, leaf: bytes) -> Iterable[bytes]:
    """The hashes of the subtrees that hold one record alone, which stand beside the ways of its neighbours."""
    place, at = verifier.state_place(key), verifier.state_place_hash([(key, leaf)])
    for depth in range(verifier.STATE_DEPTH - 1, 8, -1):
        sides = (verifier.EMPTY_STATE, at)
        at = verifier.state_node_hash(*(sides if place >> (verifier.STATE_DEPTH - 1 - depth) & 1 else sides[::-1]))
        yield at


def test_a_refusal_changes_the_root(tmp_path: Path) -> None:
    """Its id is used, though it changes nothing else."""
    with open_world(tmp_path) as world:
        before = lived(world)
        assert world.submit(world.charge("denied", run=plan(400)))[0].code.refused
        with world.book.read() as facts:
            entries = [*facts]
    assert len(entries) == len(before) + 1
    (state, tree), (state_then, tree_then) = folded(entries), folded(before)
    assert (state == state_then, tree.root == tree_then.root) == (True, False)
