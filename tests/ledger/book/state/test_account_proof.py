"""Account proofs: checked by the one-file verifier with nothing but the log's key."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

import pytest

from ledger import verifier
from ledger.book.state.account_proof import AccountProof, account_proof
from ledger.book.state.state_statements import WAIT_MS
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL, holder_of
from ledger.log.checkpoint import sign
from ledger.verifier import Balance, ProvenAccount, VerificationError, from_base64, to_base64, verify_account
from ledger.wire.records import write
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, BANK_B, HOUR_MS, LATE, LOG, LOG_KEY, MERGED, SRO
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.test_step_refund import begun, lease, state
from tests.ledger.log.memory_log import Log

OLDER: Final = Path(__file__).parents[3] / "golden" / "verifier-0001.txt"
EVERY: Final[Callable[[Entry], bool]] = lambda _: True  # noqa: E731 - who sees all


def furnish(world: StoredWorld) -> None:
    """A statement after some runs, and more runs since: new ones, and old ones that are settled."""
    world.submit(*(world.charge(f"run-{n}") for n in range(4)), world.charge("other", BANK_B))
    world.submit(world.settle("run-0", 40), world.void("run-1"))
    world.book.close()
    world.book = world.open(statements=True)
    state_anew(world)
    world.submit(world.charge("run-5"), world.settle("run-2", 7), world.settle("run-5", 40), world.void("run-3"))
    world.submit(world.charge("another", BANK_B))


def state_anew(world: StoredWorld) -> None:
    """Until there is a newer statement."""
    before = world.book.stated_tree(world.size)
    world.clock.now += WAIT_MS
    while world.book.stated_tree(world.size) is before:
        world.book._writer.send(()).result()  # noqa: SLF001 - it looks by itself, but by the real clock


def proof_of(world: StoredWorld, holder: str, sees: Callable[[Entry], bool] = EVERY) -> AccountProof:
    """A proof, as the service makes it."""
    with world.book.read() as facts:
        stated = world.book.stated_tree(facts.size)
        assert stated is not None
        return account_proof(facts, stated, PARTITION, holder, sees)


def verified(proof: object) -> ProvenAccount:
    """What the verifier reads off a proof."""
    return verify_account(write(proof).decode(), LOG)


def test_a_proof_shows_the_balance_of_now(world: StoredWorld) -> None:
    """Everyone's account and each bank's: what was stated, and with the entries since."""
    furnish(world)
    with world.book.read() as facts:
        banks = [holder_of(facts.organisations[bank].node) for bank in (BANK_A, BANK_B)]
        accounts = {holder: facts.accounts[PARTITION, holder] for holder in (GLOBAL, *banks)}
        newest = facts.size
    for holder, account in accounts.items():
        found = verified(proof_of(world, holder))
        assert found.balance == Balance(*account.posted, *account.pending)
        assert (found.partition, found.holder, found.hidden) == (PARTITION, holder, 0)
        assert found.newest.size == newest
        assert found.stated not in {None, found.balance}
    assert [verified(proof_of(world, one)).since for one in (GLOBAL, *banks)] == [5, 4, 1]


def test_an_account_without_a_charge_is_proven_absent(world: StoredWorld) -> None:
    """Nothing was lost for a lineage that has charged nothing."""
    furnish(world)
    proof = proof_of(world, "lineage:0")
    found = verified(proof)
    assert (found.stated, found.balance, found.since) == (None, None, 0)
    lied = {**proof.to_json(), "holder": GLOBAL}
    with pytest.raises(VerificationError, match="does not lead to the root"):
        verified(lied)


def test_entries_that_the_caller_may_not_see_are_counted(world: StoredWorld) -> None:
    """The balance is then that of what is shown, and the proof says so."""
    furnish(world)
    found = verified(proof_of(world, GLOBAL, lambda entry: entry.actor == BANK_B))
    assert (found.since, found.hidden) == (1, 4)
    assert found.balance != verified(proof_of(world, GLOBAL)).balance


def test_a_merger_since_changes_no_account_that_was_there(world: StoredWorld) -> None:
    """Everyone's holds each run once, and a bank's ends with the merger: nothing is missing in their proofs."""
    furnish(world)
    with world.book.read() as facts:
        holders = [GLOBAL, *(holder_of(facts.organisations[bank].node) for bank in (BANK_A, BANK_B))]
    (merged,) = world.submit(world.merger())
    assert merged.code.word == "permitted"
    for holder in holders:
        found = verified(proof_of(world, holder))
        assert (found.hidden, found.merged, found.balance) == (0, 0, balance_of(world, holder))


def balance_of(world: StoredWorld, holder: str) -> Balance:
    """What the rows say."""
    with world.book.read() as facts:
        account = facts.accounts[PARTITION, holder]
    return Balance(*account.posted, *account.pending)


def test_a_merged_account_is_proven_before_it_is_stated(world: StoredWorld) -> None:
    """By what those had that merged, the merger, and the runs since: theirs, settled by either, and those of both."""
    furnish(world)
    (merged,) = world.submit(world.merger())
    holder = holder_of(merged.index or 0)
    assert verified(proof_of(world, holder)).balance == balance_of(world, holder)
    world.submit(world.charge("of-both", BANK_B, recipients=[BANK_B]), world.settle("other", 3, BANK_B))
    found = verified(proof_of(world, holder))
    assert (found.hidden, found.merged, found.stated, found.balance) == (0, 1, None, balance_of(world, holder))
    # Joined once more, with a body that has charged nothing.
    body: dict[str, Any] = {"acquired": [BANK_A], "organisation": SRO}
    (again,) = world.submit(world.command(SRO, "acquisition", body, "again"))
    holder = holder_of(again.index or 0)
    found = verified(proof_of(world, holder))
    assert (found.hidden, found.merged, found.balance) == (0, 2, balance_of(world, holder))


def test_a_merged_account_is_stated(world: StoredWorld) -> None:
    """From the next statement on it is proven as any other."""
    furnish(world)
    (merged,) = world.submit(world.merger())
    state_anew(world)
    holder = holder_of(merged.index or 0)
    world.submit(world.charge("of-both", BANK_B, recipients=[BANK_B]))
    found = verified(proof_of(world, holder))
    assert (found.hidden, found.merged, found.since, found.balance) == (0, 0, 1, balance_of(world, holder))


def test_what_else_changed_an_account_is_counted(world: StoredWorld) -> None:
    """A child that was split off takes its parent's loss along, and no leaf shows it yet."""
    furnish(world)
    split: dict[str, Any] = {"child": BANK_B, "organisation": MERGED}
    (merged, done) = world.submit(world.merger(), world.command(SRO, "split", split, "split"))
    assert (merged.code.word, done.code.word) == ("permitted", "permitted")
    found = verified(proof_of(world, holder_of(done.index or 0)))
    assert (found.hidden > 2, found.since, found.balance) == (True, 0, None)


def test_a_lineage_that_began_since_the_statement_shows_how(world: StoredWorld) -> None:
    """Without its merger it would look like one that had nothing: what is not shown of its beginning is counted."""
    furnish(world)
    (merged, registered) = world.submit(world.merger(), world.registration(LATE, "TDC"))
    world.submit(world.charge("small"))
    whole: dict[str, Any] = proof_of(world, holder_of(merged.index or 0)).to_json()
    since = [one for one in whole["since"] if json.loads(from_base64(one["entry"], ""))["id"] == "small"]
    cut = {**whole, "charges": [], "merged": [], "since": since}
    assert (verified(whole).hidden, verified(cut).hidden) == (0, 1)
    began: dict[str, Any] = proof_of(world, holder_of(registered.index or 0)).to_json()
    assert (verified(began).hidden, verified({**began, "origin": None}).hidden) == (0, 1)
    merger = whole["merged"][0]["merger"]
    assert verified({**cut, "origin": merger}).hidden == 1
    with pytest.raises(VerificationError, match=r"^origin: is entry"):
        verified({**cut, "origin": began["origin"]})


def test_entries_under_two_heads_of_one_size_prove_nothing(world: StoredWorld) -> None:
    """The log's key has signed both, and what one of them says of an account the other need not."""
    furnish(world)
    with world.book.read() as facts:
        holder = holder_of(facts.organisations[BANK_A].node)
        entries = [facts.entry(index) for index in range(facts.size)]
    whole: dict[str, Any] = proof_of(world, holder).to_json()
    fork = Log([*entries[:-1], entries[-1].replace(b'"time":1', b'"time":2')])
    size = len(entries)
    note = sign(replace(fork.checkpoint(size), origin=LOG.origin), LOG_KEY)
    first = whole["since"][0]["entry"]
    at = next(index for index, data in enumerate(entries) if to_base64(data) == first)
    other = {"entry": first, "receipt": fork.receipt(at, size, note)}
    with pytest.raises(VerificationError, match="several checkpoints"):
        verified({**whole, "since": [other, *whole["since"][1:]]})


def test_who_registers_since_the_statement_knows_what_was_published(world: StoredWorld) -> None:
    """No leaf and no entry of a run shows it; where nothing was published, the proof goes on to hide nothing."""
    first, second = LATE, "did:web:bank-f.example"
    furnish(world)
    (registered,) = world.submit(world.registration(first, "TDC"))
    assert verified(proof_of(world, holder_of(registered.index or 0))).hidden == 0
    world.submit(world.charge("public"), world.release("public"), world.settle("public", 100))
    assert world.send(SRO, "publication", {"charge": "public"}, "published").code.word == "permitted"
    state_anew(world)
    (registered,) = world.submit(world.registration(second, "TDC"))
    with world.book.read() as facts:
        holder = holder_of(facts.organisations[second].node)
    assert balance_of(world, holder).posted[0] > 0
    found = verified(proof_of(world, holder))
    assert (found.stated, found.hidden > 0) == (None, True)
    state_anew(world)
    found = verified(proof_of(world, holder))
    assert (found.hidden, found.balance) == (0, balance_of(world, holder))


def test_a_lapse_that_posts_what_was_leased_is_reported(tmp_path: Path) -> None:
    """Its steps are those of leases, which are no part of the proof."""
    with open_world(tmp_path, founded=False) as world:
        world.found(*world.founding_with(partitions={"2026-q4": {"epsilon": "8"}}))
        state(world, "stated")
        run = begun(world)
        lease(world, run, (1, 10), 0)
        world.book.close()
        world.book = world.open(statements=True)
        state_anew(world)
        world.clock.now += HOUR_MS
        assert world.lapse(run) == "posted"
        found = verified(proof_of(world, GLOBAL))
        assert (found.counted, found.since, found.balance) == (1, 1, balance_of(world, GLOBAL))


MERGER_LIES: Final[dict[str, tuple[str, Callable[[dict[str, Any]], None]]]] = {
    "one parent less": ("lacks what", lambda merged: merged["accounts"].pop()),
    "no parent's loss": ("does not lead to", lambda merged: merged["accounts"][0].update(record=None, salt=None)),
    "one parent twice": ("lacks what", lambda merged: merged["accounts"].__setitem__(0, merged["accounts"][1])),
    "another holder": ("is none of the merged", lambda merged: merged["accounts"][0].update(holder="lineage:999")),
    "no merger": ("is not the entry of a merger", lambda merged: merged.update(merger=merged["other"])),
}


@pytest.mark.parametrize("lie", MERGER_LIES)
def test_a_changed_merger_fails(world: StoredWorld, lie: str) -> None:
    """Whatever is changed in it; and a merger that leads to another account is none of this one."""
    furnish(world)
    (merged,) = world.submit(world.merger())
    proof: dict[str, Any] = proof_of(world, holder_of(merged.index or 0)).to_json()
    (shown,) = proof["merged"]
    assert verified(proof).merged == 1
    with pytest.raises(VerificationError, match="does not end with the merger that made"):
        verified({**proof_of(world, GLOBAL).to_json(), "merged": [shown]})
    with pytest.raises(VerificationError, match="comes after the one before it"):
        verified({**proof, "merged": [shown, shown]})
    words, change = MERGER_LIES[lie]
    lied = copy.deepcopy(proof)
    lied["merged"][0]["other"] = proof["statement"]
    change(lied["merged"][0])
    del lied["merged"][0]["other"]
    with pytest.raises(VerificationError, match=words):
        verified(lied)


LIES: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "a smaller balance": lambda proof: proof.update(record=proof["record"].replace("[[", "[[1", 1)),
    "another salt": lambda proof: proof.update(salt=to_base64(bytes(32))),
    "no record": lambda proof: proof.update(record=None, salt=None),
    "another holder": lambda proof: proof.update(holder="lineage:9"),
    "another statement": lambda proof: proof.update(statement=proof["since"][0]),
    "a sibling more": lambda proof: proof["siblings"].append({"depth": 63, "hash": to_base64(bytes(31) + b"1")}),
    "a sibling less": lambda proof: proof["siblings"].pop(),
    "the same entry twice": lambda proof: proof["since"].insert(0, proof["since"][0]),
    "entries in another order": lambda proof: proof["since"].reverse(),
    "a settlement without its charge": lambda proof: proof["charges"].clear(),
    "a changed entry": lambda proof: proof["since"][0].update(entry=proof["charges"][0]["entry"]),
    "an entry of another kind": lambda proof: proof["since"].append(proof["statement"]),
    "a field more": lambda proof: proof.update(more=1),
    "a number for a text": lambda proof: proof.update(salt=1),
    "fewer than none hidden": lambda proof: proof.update(hidden=-1),
    "another version": lambda proof: proof.update(v=2),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_changed_proof_fails(proven: dict[str, Any], lie: str) -> None:
    """Whatever is changed in it."""
    assert verified(proven).since == 5
    lied = copy.deepcopy(proven)
    LIES[lie](lied)
    with pytest.raises(VerificationError):
        verified(lied)


def test_a_charge_is_settled_once_in_a_proof(world: StoredWorld) -> None:
    """A log that settles it again, as after a clock that went back, takes its loss away twice."""
    furnish(world)
    proof: dict[str, Any] = proof_of(world, GLOBAL).to_json()
    (again,) = [one for one in proof["since"] if b'"kind":"void"' in from_base64(one["entry"], "")]
    data = from_base64(again["entry"], "")
    with world.book.read() as facts:
        lied = Log([*facts.entries(0, facts.size), data])
    head = replace(lied.checkpoint(len(lied.entries)), origin=LOG.origin)
    note = sign(head, LOG_KEY)
    proof["since"].append({**again, "receipt": lied.receipt(len(lied.entries) - 1, len(lied.entries), note)})
    with pytest.raises(VerificationError, match="or was settled before"):
        verified(proof)


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The proof of everyone's account."""
    with open_world(tmp_path_factory.mktemp("proven")) as world:
        furnish(world)
        return proof_of(world, GLOBAL).to_json()


def test_the_verifier_checks_it_alone(proven: dict[str, Any], tmp_path: Path) -> None:
    """With one file, the proof and the log's key; it says what the proof does not show."""
    (tmp_path / "proof").write_text(json.dumps(proven))
    (tmp_path / "log.vkey").write_text(LOG.vkey)
    copied = tmp_path / "verifier.py"
    copied.write_bytes(Path(verifier.__file__).read_bytes())

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-I", str(copied), "account", "proof", "--log", "log.vkey", *more]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    said = run()
    assert (said.returncode, said.stdout.startswith(f"holds: {LOG.origin} signed that global on")) == (0, True)
    assert "'epsilon verify' shows" in said.stdout
    found = json.loads(run("--json").stdout)
    assert (found["account"], found["since"]) == (GLOBAL, 5)
    (tmp_path / "proof").write_text(json.dumps({**proven, "salt": None}))
    assert run().returncode == verifier.FAILED


def test_an_older_verifier_checks_the_entry_of_a_statement(proven: dict[str, Any], tmp_path: Path) -> None:
    """The one of before there were any: to it a statement is an entry like any other."""
    (tmp_path / "log.vkey").write_text(LOG.vkey)
    (tmp_path / "entry").write_bytes(from_base64(proven["statement"]["entry"], ""))
    (tmp_path / "receipt").write_text(proven["statement"]["receipt"])
    words = [sys.executable, "-I", str(OLDER), "receipt", "receipt", "entry", "--log", "log.vkey"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_a_charge_since_the_statement_is_not_passed_off_as_an_older_one(world: StoredWorld) -> None:
    """Else its settlement would take away what it never added: less would be pending than the log states."""
    furnish(world)
    with world.book.read() as facts:
        holder = holder_of(facts.organisations[BANK_A].node)
    world.submit(world.charge("run-9"), world.void("run-9"))
    proof = proof_of(world, holder).to_json()
    shown: Any = proof["since"]
    by_id = {json.loads(from_base64(one["entry"], ""))["id"]: one for one in shown}
    forged = {**proof, "charges": [by_id["run-9"]], "since": [by_id["void-run-9"]]}
    with pytest.raises(VerificationError, match=r"charges\[0\].* comes after the statement"):
        verified(forged)


def test_a_lineage_of_a_merger_since_needs_that_merger(world: StoredWorld) -> None:
    """Without it the balance would begin with nothing, and settlements of older runs would take it below."""
    furnish(world)
    (merged,) = world.submit(world.merger())
    assert merged.index is not None
    proof = proof_of(world, holder_of(merged.index)).to_json()
    assert verified(proof).merged == 1
    with pytest.raises(VerificationError, match="the merger that made it is missing"):
        verified({**proof, "merged": []})
    # What the verifier counts by itself is not taken back by a count that the proof states.
    with pytest.raises(VerificationError, match=r"^hidden: must not be negative"):
        verified({**proof, "merged": [], "hidden": -1})


def test_settlements_of_others_take_nothing_away(world: StoredWorld) -> None:
    """They are signed as any, and no entry shows that the account knew their runs: what was pending stays."""
    furnish(world)
    with world.book.read() as facts:
        ours, theirs = (holder_of(facts.organisations[bank].node) for bank in (BANK_B, BANK_A))
    own, other = (cast("dict[str, Any]", proof_of(world, holder).to_json()) for holder in (ours, theirs))
    settled = [
        one for one in other["since"] if json.loads(from_base64(one["entry"], ""))["id"] in {"post-run-2", "void-run-3"}
    ]
    assert (len(other["charges"]), len(settled)) == (2, 2)
    since = sorted((*own["since"], *settled), key=lambda one: int(one["receipt"].split()[2]))
    honest, found = verified(own), verified({**own, "charges": own["charges"] + other["charges"], "since": since})
    assert (honest.foreign, found.foreign) == (0, 2)
    assert honest.balance is not None
    assert found.balance is not None
    assert found.balance.pending == honest.balance.pending
    assert found.balance.posted > honest.balance.posted


@pytest.mark.parametrize(
    ("field", "rule"),
    [("record", "holds a lone surrogate"), ("holder", "must be 'global'"), ("partition", "must be 'provider/")],
)
def test_half_a_character_in_a_proof_is_named(world: StoredWorld, field: str, rule: str) -> None:
    """JSON can spell it, and no text holds it: a sentence, and no traceback."""
    furnish(world)
    forged = {**proof_of(world, GLOBAL).to_json(), field: "\ud800"}
    with pytest.raises(VerificationError, match=rule):
        verify_account(json.dumps(forged), LOG)


def shown_absent(proof: dict[str, Any], names: Iterator[tuple[str, str]]) -> dict[str, Any]:
    """What the leaf of a genuine proof shows too: that the first of these names that lies beside it has no record."""
    own = verifier._canonical(["accounts", [proof["partition"], proof["holder"]]])  # noqa: SLF001 - as it computes it
    place, beside = verifier.state_place(verifier.state_key(own)), proof["siblings"]
    deepest = max(one["depth"] for one in beside)
    for partition, holder in names:
        name = verifier._canonical(["accounts", [partition, holder]])  # noqa: SLF001 - likewise
        shared = verifier.STATE_DEPTH - (place ^ verifier.state_place(verifier.state_key(name))).bit_length()
        if shared > deepest:
            break
    # Below the place where the two ways part, the genuine leaf is all there is.
    leaf, hashes = verifier._account_leaves(proof, own), {}  # noqa: SLF001 - likewise
    hashes[verifier.STATE_DEPTH] = verifier.state_place_hash(leaf)
    for depth in range(verifier.STATE_DEPTH - 1, shared, -1):
        pair = [verifier.EMPTY_STATE, hashes[depth + 1]]
        right = place >> (verifier.STATE_DEPTH - 1 - depth) & 1
        hashes[depth] = verifier.state_node_hash(*(pair if right else pair[::-1]))
    siblings = [*beside, {"depth": shared, "hash": to_base64(hashes[shared + 1])}]
    empty: dict[str, Any] = {name: [] for name in ("beside", "charges", "since", "merged", "opened")}
    leaf_of = {"holder": holder, "partition": partition, "record": None, "salt": None, "siblings": siblings}
    return {**proof, **empty, **leaf_of, "hidden": 0}


def invisible() -> Iterator[str]:
    """Endings that no screen shows."""
    return ("".join("\u200b\u200c"[int(one)] for one in f"{number:b}") for number in count())


LOOKALIKES: Final[dict[str, Callable[[], Iterator[tuple[str, str]]]]] = {
    "holder": lambda: ((PARTITION, f"{GLOBAL}{end}") for end in invisible()),
    "partition": lambda: ((f"{PARTITION}{end}", GLOBAL) for end in invisible()),
    "a hundred zeros": lambda: ((PARTITION, f"lineage:{'0' * 100}{number}") for number in count()),
    "digits of another script": lambda: ((PARTITION, f"lineage:\u0663{end}") for end in invisible()),
    "digits without end": lambda: ((PARTITION, f"lineage:{'9' * 5_000}{number}") for number in count()),
}


@pytest.mark.parametrize("made", LOOKALIKES)
def test_no_name_that_only_looks_like_an_accounts_is_proven_absent(world: StoredWorld, made: str) -> None:
    """One genuine proof shows nearly any other name absent: 'global' with what no screen shows would have no loss."""
    furnish(world)
    forged = shown_absent(json.loads(write(proof_of(world, GLOBAL))), LOOKALIKES[made]())
    with pytest.raises(VerificationError, match=r"^(holder: must be 'global', or|partition: must be 'provider/)"):
        verify_account(json.dumps(forged), LOG)


def test_an_absent_record_is_called_so(world: StoredWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """'has no record', for a lineage that never was: only an account has posted nothing."""
    furnish(world)
    genuine = json.loads(write(proof_of(world, GLOBAL)))
    never = shown_absent(genuine, ((PARTITION, f"lineage:{number}") for number in count(10**6)))
    (tmp_path / "log.vkey").write_text(LOG.vkey)
    said = []
    for proof in (never, genuine):
        (tmp_path / "proof").write_text(json.dumps(proof))
        code = verifier.main(["account", str(tmp_path / "proof"), "--log", str(tmp_path / "log.vkey")])
        said.append((code, "has no record" in (printed := capsys.readouterr().out), "has posted" in printed))
    assert said == [(0, True, False), (0, False, True)]


@pytest.mark.parametrize("more", [10**16, int("9" * 4_000)])
def test_a_count_beyond_any_log_is_refused(world: StoredWorld, more: int) -> None:
    """One more than the greatest number that Python writes would end in a traceback."""
    furnish(world)
    with pytest.raises(VerificationError, match=r"^hidden: is more than any log has entries"):
        verified({**proof_of(world, GLOBAL).to_json(), "hidden": more})
