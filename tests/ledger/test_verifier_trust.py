"""Whom a verifier trusts: keys, cosignatures, quorums; and that no byte of what was signed can be another one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.log.checkpoint import receipt
from ledger.verifier import (
    SIGNATURES_MAX,
    Checkpoint,
    LogKey,
    Note,
    Policy,
    VerificationError,
    WitnessKey,
    check_extends,
    leaf_hash,
    log_key_changes,
    to_base64,
    verify_consistency,
    verify_inclusion,
    verify_receipt,
)
from tests.ledger.log.memory_log import KEY, ORIGIN, Cosigner, Log, log_of

# C2SP signed-note.md, the example of its last section.
PUBLISHED_VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
PUBLISHED_NOTE = (
    "This is an example message.\n\n— example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
LOG = log_of(11)
NOTE = LOG.note(11)
A, B, C, D = (Cosigner(f"witness.example/{name}", 10 + place) for place, name in enumerate("abcd"))
ALL = {"A": A, "B": B, "C": C, "D": D}


def test_the_published_note_verifies() -> None:
    """Under its own key; not with another text, nor another signature."""
    key = LogKey.parse(PUBLISHED_VKEY)
    assert key.vkey == PUBLISHED_VKEY
    assert Note.parse(PUBLISHED_NOTE).signature_of(key) is not None
    for place in range(len(PUBLISHED_NOTE)):
        changed = PUBLISHED_NOTE[:place] + chr(ord(PUBLISHED_NOTE[place]) ^ 1) + PUBLISHED_NOTE[place + 1 :]
        assert not accepted_by(key, changed)


def accepted_by(key: LogKey, note: str) -> bool:
    """Whether a note bears a signature of the key."""
    try:
        return Note.parse(note).signature_of(key) is not None
    except VerificationError:
        return False


@pytest.mark.parametrize("size", [1, 2, 3, 11])
def test_every_byte_of_a_receipt_counts(size: int) -> None:
    """Whichever bit of a receipt, a checkpoint or an entry is another one: refused, and never a crash."""
    text, entry = LOG.receipt(0, size).encode(), LOG.entries[0]
    assert verify_receipt(text.decode(), entry, KEY)[0] == 0
    for place, bit in itertools.product(range(len(text)), range(8)):
        changed = text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]
        with pytest.raises(VerificationError):
            verify_receipt(changed.decode(errors="surrogateescape"), entry, KEY)
    for place, bit in itertools.product(range(len(entry)), range(8)):
        with pytest.raises(VerificationError, match="does not prove"):
            verify_receipt(text.decode(), entry[:place] + bytes([entry[place] ^ 1 << bit]) + entry[place + 1 :], KEY)


def test_every_byte_of_a_cosigned_checkpoint_counts() -> None:
    """All but the witness's line, which is passed over by whoever does not know it, is the log's."""
    policy = policy_of("witness A", "quorum A")
    note = (NOTE + A.line(NOTE)).encode()
    assert Checkpoint.open(note.decode(), policy) == LOG.checkpoint(11)
    for place, bit in itertools.product(range(len(note)), range(8)):
        changed = note[:place] + bytes([note[place] ^ 1 << bit]) + note[place + 1 :]
        with pytest.raises(VerificationError):
            Checkpoint.open(changed.decode(errors="surrogateescape"), policy)


def test_extra_data_of_a_receipt_is_passed_over() -> None:
    """tlog-proof lets a log add a line that proves nothing; anything else in its place is refused."""
    mark, _, rest = LOG.receipt(5, 11).partition("\n")
    assert verify_receipt(f"{mark}\nextra YWdl\n{rest}", LOG.entries[5], KEY)[0] == 5
    for line in ("extra !", "extra", "extra YWdl\nextra YWdl", "more YWdl", ""):
        with pytest.raises(VerificationError):
            verify_receipt(f"{mark}\n{line}\n{rest}", LOG.entries[5], KEY)


def test_a_cosignature_is_over_its_time_and_its_note() -> None:
    """Another time, another note, a time of zero, or beyond 63 bits: not one."""
    key = A.key
    assert WitnessKey.parse(key.vkey) == key
    good = Note.parse(NOTE + A.line(NOTE))
    assert good.signature_of(key) is not None
    (_, raw) = good.lines[-1]
    later = raw[:4] + (int.from_bytes(raw[4:12], "big") + 1).to_bytes(8, "big") + raw[12:]
    with pytest.raises(VerificationError, match="does not verify"):
        Note(good.text, ((key.name, later),)).signature_of(key)
    for line in (A.line(LOG.note(10)), A.line(NOTE, 0), A.line(NOTE, 1 << 63)):
        with pytest.raises(VerificationError, match="does not verify"):
            Note.parse(NOTE + line).signature_of(key)
    assert Note.parse(NOTE + B.line(NOTE)).signature_of(key) is None


@pytest.mark.parametrize("kind", [LogKey, WitnessKey])
def test_a_key_of_one_kind_is_none_of_the_other(kind: type[LogKey | WitnessKey]) -> None:
    """The byte before the key says what it signs."""
    other = A.key.vkey if kind is LogKey else KEY.vkey
    with pytest.raises(VerificationError, match="vkey"):
        kind.parse(other)


def test_sixteen_signatures_are_read_and_more() -> None:
    """The limit is above what signed-note asks for; beyond it the note is refused by name."""
    others = [Cosigner(f"w{place}", place + 100) for place in range(SIGNATURES_MAX)]
    assert Checkpoint.open(NOTE + "".join(one.line(NOTE) for one in others[:-1]), KEY) == LOG.checkpoint(11)
    assert SIGNATURES_MAX >= 16
    with pytest.raises(VerificationError, match="too many signatures"):
        Checkpoint.open(NOTE + "".join(one.line(NOTE) for one in others), KEY)


def policy_of(*lines: str) -> Policy:
    """A policy of this log; ``witness A`` stands for A and its key."""
    known = {f"witness {name}": f"witness {name} {one.key.vkey}" for name, one in ALL.items()}
    return Policy.parse("\n".join([f"log {KEY.vkey}", *(known.get(line, line) for line in lines)]) + "\n")


WITNESSES = [f"witness {name}" for name in ALL]
QUORUMS: dict[str, Callable[[set[str]], bool]] = {
    "quorum none": lambda _: True,
    "quorum A": lambda who: "A" in who,
    "group G any A B C D|quorum G": lambda who: who != set(),
    "group G all A B C|quorum G": lambda who: {"A", "B", "C"} <= who,
    "group G 2 A B C|quorum G": lambda who: len(who & {"A", "B", "C"}) >= 2,
    "group G 2 A B C|group H all G D|quorum H": lambda who: len(who & {"A", "B", "C"}) >= 2 and "D" in who,
    "group G all A B|group H any G C|quorum H": lambda who: {"A", "B"} <= who or "C" in who,
}


@pytest.mark.parametrize("lines", QUORUMS)
def test_quorums(lines: str) -> None:
    """Every set of cosignatures against what the words of the policy say."""
    policy = policy_of(*WITNESSES, *lines.split("|"))
    for count in range(len(ALL) + 1):
        for who in itertools.combinations(ALL, count):
            note = NOTE + "".join(ALL[name].line(NOTE) for name in who)
            if QUORUMS[lines](set(who)):
                assert Checkpoint.open(note, policy) == LOG.checkpoint(11)
            else:
                with pytest.raises(VerificationError, match="lacks the cosignatures"):
                    Checkpoint.open(note, policy)


def test_a_known_witness_that_signed_wrongly_spoils_the_note() -> None:
    """Even where the quorum is met without it."""
    policy = policy_of(*WITNESSES, "quorum A")
    with pytest.raises(VerificationError, match=r"witness\.example/b that does not verify"):
        Checkpoint.open(NOTE + A.line(NOTE) + B.line(LOG.note(10)), policy)


def test_one_witness_counts_once() -> None:
    """Cosigning twice makes no two of three."""
    policy = policy_of(*WITNESSES, "group G 2 A B C", "quorum G")
    with pytest.raises(VerificationError, match="lacks the cosignatures"):
        Checkpoint.open(NOTE + A.line(NOTE, 1) + A.line(NOTE, 2), policy)


def test_either_of_two_keys_of_a_log() -> None:
    """A policy with an old and a new key takes both; with neither, the log is not known."""
    new = Cosigner("unused", 3).private
    other = LogKey(ORIGIN, new.public_key().public_bytes_raw())
    policy = Policy.parse(f"log {other.vkey}\nlog {KEY.vkey} https://epsilon.example\n\n# kept\nquorum none\n")
    assert Checkpoint.open(NOTE, policy) == LOG.checkpoint(11)
    with pytest.raises(VerificationError, match="is of the log"):
        Checkpoint.open(NOTE, Policy.parse("quorum none\n"))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["quorum A"],
        ["quorum none", "quorum none"],
        ["witness A", "witness A", "quorum A"],
        ["witness A", f"witness B2 {A.key.vkey}", "quorum A"],
        [f"log {KEY.vkey}", "quorum none"],
        ["witness A", "group G 2 A", "quorum G"],
        ["witness A", "group G 0 A", "quorum G"],
        ["witness A", "group G 01 A", "quorum G"],
        ["witness A", "group G -1 A", "quorum G"],
        ["witness A", "group G any", "quorum G"],
        ["witness A", "group G some A", "quorum G"],
        ["witness A", "group G 2 A A", "quorum G"],
        ["witness A", "group G any A none", "quorum G"],
        ["witness A", "group G any B", "witness B", "quorum G"],
        ["witness A", "group G any A", "group H any A G", "quorum H"],
        ["witness A", "group A any A", "quorum A"],
        ["witness A", "group none any A", "quorum none"],
        [f"witness X {KEY.vkey}", "quorum X"],
        ["witness A extra", "quorum none"],
        ["qurom none"],
        ["quorum none\x00"],
        ["quorum none\r"],
    ],
)
def test_what_is_no_policy(lines: Sequence[str]) -> None:
    """Refused by its line, never a crash and never a weaker policy."""
    with pytest.raises(VerificationError, match=r"^policy"):
        policy_of(*lines)


WORDS = ["log", "witness", "group", "quorum", "none", "any", "all", "1", "2", "G", "A", A.key.vkey, KEY.vkey, "#", "\t"]
LINES = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=8)


@given(LINES)
def test_any_lines_are_a_policy_or_refused(lines: list[str]) -> None:
    """What is read names one quorum, and only witnesses and groups that it has; nothing else happens."""
    with suppress(VerificationError):
        policy = Policy.parse("\n".join(lines))
        known = policy.witnesses.keys() | policy.groups.keys()
        assert policy.quorum is None or policy.quorum in known
        assert all(1 <= least <= len(members) for least, members in policy.groups.values())
        assert {member for _, members in policy.groups.values() for member in members} <= known
        assert [line.split()[0] for line in lines if line.split()].count("quorum") == 1
        assert policy.suffices([*policy.witnesses]) or not policy.witnesses


def test_a_log_that_grew_and_one_that_did_not() -> None:
    """From every size to every later one; and a rewritten, a shortened and another log are told apart."""
    forged = Log([b"another", *LOG.entries[1:]])
    for old, size in itertools.combinations(range(12), 2):
        proof = LOG.consistency(old, size) if old else []
        check_extends(LOG.checkpoint(old), LOG.checkpoint(size), proof)
        with pytest.raises(VerificationError, match="some are gone"):
            check_extends(LOG.checkpoint(size), LOG.checkpoint(old), proof)
        if old:
            with pytest.raises(VerificationError, match="does not lead"):
                check_extends(LOG.checkpoint(old), forged.checkpoint(size), forged.consistency(old, size))
    with pytest.raises(VerificationError, match="a fork: the log signed two roots for 11 entries"):
        check_extends(LOG.checkpoint(11), forged.checkpoint(11), [])
    with pytest.raises(VerificationError, match="is of the log"):
        check_extends(Checkpoint("elsewhere.example", 1, bytes(32)), LOG.checkpoint(11), [])


def test_a_log_grown_from_nothing_needs_no_proof() -> None:
    """And has none: hashes that prove nothing are not passed over."""
    check_extends(LOG.checkpoint(0), LOG.checkpoint(11), [])
    with pytest.raises(VerificationError, match="does not lead"):
        check_extends(LOG.checkpoint(0), LOG.checkpoint(11), [bytes(32)])


def test_a_hash_has_32_bytes() -> None:
    """Bytes moved from one hash into its neighbour hash to the same node, and are refused all the same."""
    leaf, proof, root = leaf_hash(LOG.entries[0]), LOG.consistency(1, 2), LOG.checkpoint(2).root
    (sibling,) = proof
    assert verify_inclusion(leaf, 0, 2, [sibling], root)
    assert not verify_inclusion(leaf + sibling[:1], 0, 2, [sibling[1:]], root)
    first, second, *rest = LOG.consistency(3, 11)
    roots = LOG.checkpoint(3).root, LOG.checkpoint(11).root
    assert verify_consistency(3, 11, [first, second, *rest], *roots)
    for moved in ([first + second[:1], second[1:]], [first[:-1], first[-1:] + second]):
        assert not verify_consistency(3, 11, [*moved, *rest], *roots)


def test_a_proof_is_of_limited_length() -> None:
    """No log that there can be needs more hashes than the formats allow."""
    mark, index, rest = LOG.receipt(5, 11).split("\n", 2)
    line = rest.partition("\n")[0]
    with pytest.raises(VerificationError, match="more than 63 hashes"):
        verify_receipt("\n".join([mark, index, *[line] * 64, "", NOTE]), LOG.entries[5], KEY)


def test_random_bytes_are_no_receipt() -> None:
    """Whatever stands between the mark and the end: refused by name."""
    dice = random.Random(1)  # noqa: S311 - bytes to refuse
    text = LOG.receipt(5, 11)
    for _ in range(300):
        start, length = dice.randrange(len(text)), dice.randrange(40)
        junk = dice.randbytes(dice.randrange(20)).decode("latin-1")
        changed = text[:start] + junk + text[start + length :]
        if changed != text:
            with pytest.raises(VerificationError):
                verify_receipt(changed, LOG.entries[5], KEY)


def test_a_cosigned_receipt() -> None:
    """The checkpoint in a receipt carries its cosignatures, and the quorum is asked of it."""
    policy = policy_of(*WITNESSES, "group G 2 A B C", "quorum G")
    proof = LOG.receipt(5, 11).partition("\n\n")[0]
    text = f"{proof}\n\n{NOTE}{A.line(NOTE)}{C.line(NOTE)}"
    assert verify_receipt(text, LOG.entries[5], policy) == (5, LOG.checkpoint(11))
    assert receipt(0, [], NOTE).endswith(NOTE)
    with pytest.raises(VerificationError, match="lacks the cosignatures"):
        verify_receipt(LOG.receipt(5, 11), LOG.entries[5], policy)


@pytest.mark.parametrize(
    ("key", "overlap", "says"),
    [("c2hvcnQ", b"0", "names a key of 5 bytes, not 32"), ("c2hvcnQ", b"1e999", "names no keys")],
)
def test_a_rotation_of_no_keys_is_named(key: str, overlap: bytes, says: str) -> None:
    """Whoever serves rotations can write anything there: a sentence, and no traceback."""
    jwk = b'{"x":"' + key.encode() + b'"}'
    request = b'{"key":' + jwk + b',"overlap":' + overlap + b',"retires":' + jwk + b"}"
    entry = b'{"body":{"outcome":"permitted","request":' + request + b'},"kind":"log_key_rotation"}'
    text = json.dumps({"rotations": [{"entry": to_base64(entry), "receipt": "\n\norigin\n"}], "v": 1})
    with pytest.raises(VerificationError, match=says):
        log_key_changes(text)
