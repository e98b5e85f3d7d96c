"""Checkpoints and receipts: the published signed-note key, and every change of a signed text refused."""

import base64
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.log import merkle
from ledger.log.checkpoint import receipt, sign
from ledger.verifier import Checkpoint, LogKey, VerificationError, leaf_hash, verify_receipt

# The example of golang.org/x/mod/sumdb/note, which the C2SP signed-note specification points to.
VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)

ORIGIN = "epsilon.example/ledger"
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32)
KEY = LogKey(ORIGIN, PRIVATE.public_key().public_bytes_raw())
OTHER_KEY = LogKey(ORIGIN, OTHER.public_key().public_bytes_raw())
ENTRIES = [f"entry {place}".encode() for place in range(11)]
ROOT = bytes(range(32))
SIGNED = sign(Checkpoint(ORIGIN, 18, ROOT), PRIVATE)
TEXT = Checkpoint(ORIGIN, 18, ROOT).text


def test_published_verifier_key() -> None:
    """Its id and bytes are read, and written back the same."""
    key = LogKey.parse(VKEY)
    assert key.vkey == VKEY
    assert key.id.hex() == "c74f20a3"
    assert key.public == Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()


def test_published_note_is_signed_as_we_sign() -> None:
    """The published line is key id and signature over the text up to the blank line, as our own line is."""
    private, key = Ed25519PrivateKey.from_private_bytes(SEED), LogKey.parse(VKEY)
    text, _, line = NOTE.partition("\n\n")
    raw = base64.b64decode(line.split(" ")[2])
    assert raw == key.id + private.sign((text + "\n").encode())
    ours = sign(Checkpoint("PeterNeumann", 1, ROOT), private)
    own_text, _, own_line = ours.partition("\n\n")
    assert base64.b64decode(own_line.split(" ")[2]) == key.id + private.sign((own_text + "\n").encode())
    assert Checkpoint.open(ours, key) == Checkpoint("PeterNeumann", 1, ROOT)


def test_a_signed_note_that_is_no_checkpoint_is_refused() -> None:
    """The published note is of no log."""
    with pytest.raises(VerificationError, match="checkpoint"):
        Checkpoint.open(NOTE, LogKey.parse(VKEY))


@pytest.mark.parametrize("cut", range(len(VKEY)))
def test_no_piece_of_a_verifier_key_is_one(cut: int) -> None:
    """Cut at the front, at the back, or with one character changed: refused."""
    changed = VKEY[:cut] + chr(ord(VKEY[cut]) ^ 1) + VKEY[cut + 1 :]
    for text in (VKEY[:cut], VKEY[cut + 1 :], changed):
        with pytest.raises(VerificationError, match="vkey"):
            LogKey.parse(text)


@pytest.mark.parametrize(
    "text", ["", "a+b", "a b+c74f20a3+AQ==", f"{VKEY}\n", f"{VKEY}=", f" {VKEY}", "é+00000000+AQ=="]
)
def test_what_is_no_verifier_key(text: str) -> None:
    """Refused by name, never a crash."""
    with pytest.raises(VerificationError, match="vkey"):
        LogKey.parse(text)


def test_checkpoint_bytes() -> None:
    """Three lines, a blank one, a signature line: as C2SP tlog-checkpoint spells them; reading gives it back."""
    lines = SIGNED.split("\n")
    assert lines[:4] == [ORIGIN, "18", base64.b64encode(ROOT).decode(), ""]
    assert lines[4].startswith(f"— {ORIGIN} ")
    assert lines[5:] == [""]
    assert Checkpoint.open(SIGNED, KEY) == Checkpoint(ORIGIN, 18, ROOT)


def cosigned(line: str) -> str:
    """The signed note with one more signature line."""
    return SIGNED + line + "\n"


def of(key: LogKey, private: Ed25519PrivateKey, text: str) -> str:
    """A signature line over any text."""
    return f"— {key.origin} {base64.b64encode(key.id + private.sign(text.encode())).decode()}"


def noted(text: str) -> str:
    """A note over any text, correctly signed by the log's key."""
    return f"{text}\n{of(KEY, PRIVATE, text)}\n"


UNKNOWN = f"— witness.example {base64.b64encode(bytes(76)).decode()}"


def test_unknown_signatures_are_passed_over() -> None:
    """A witness's line, or another key under our origin, neither helps nor hurts; before our own line too."""
    expected = Checkpoint(ORIGIN, 18, ROOT)
    other = of(OTHER_KEY, OTHER, expected.text)
    text, _, own = SIGNED.partition("\n\n")
    for note in (cosigned(UNKNOWN), cosigned(other), f"{text}\n\n{UNKNOWN}\n{other}\n{own}"):
        assert Checkpoint.open(note, KEY) == expected


def test_extension_lines_are_signed_and_passed_over() -> None:
    """tlog-checkpoint lets a log add lines after the root."""
    text = f"{ORIGIN}\n18\n{base64.b64encode(ROOT).decode()}\nextension\n"
    assert Checkpoint.open(noted(text), KEY) == Checkpoint(ORIGIN, 18, ROOT)


ROOT_LINE = base64.b64encode(ROOT).decode()
BAD_NOTES: dict[str, str] = {
    "size changed": SIGNED.replace("\n18\n", "\n19\n"),
    "root changed": SIGNED.replace(ROOT_LINE, base64.b64encode(bytes(32)).decode()),
    "origin changed": SIGNED.replace(ORIGIN, "epsilon.example/other"),
    "line added": SIGNED.replace("\n\n", "\nmore\n\n"),
    "other key only": f"{TEXT}\n{of(OTHER_KEY, OTHER, TEXT)}\n",
    "our key id, other signature": cosigned(of(KEY, OTHER, TEXT)),
    "our key id, short signature": cosigned(f"— {ORIGIN} {base64.b64encode(KEY.id).decode()}"),
    "no signature": SIGNED.partition("\n\n")[0] + "\n\n",
    "unknown signature only": SIGNED.partition("\n\n")[0] + f"\n\n{UNKNOWN}\n",
    "no blank line": SIGNED.replace("\n\n", "\n"),
    "no last newline": SIGNED.removesuffix("\n"),
    "line that is no signature": cosigned("hello"),
    "hyphen for the dash": SIGNED.replace("—", "-"),
    "base64 with a stray character": cosigned("— witness.example AA!A"),
    "size with a zero before": noted(f"{ORIGIN}\n018\n{ROOT_LINE}\n"),
    "size negative": noted(f"{ORIGIN}\n-1\n{ROOT_LINE}\n"),
    "size with a space": noted(f"{ORIGIN}\n18 \n{ROOT_LINE}\n"),
    "size in other digits": noted(f"{ORIGIN}\n١\n{ROOT_LINE}\n"),
    "size of 17 digits": noted(f"{ORIGIN}\n{10**16}\n{ROOT_LINE}\n"),
    "control character": noted(f"{ORIGIN}\n18\n{ROOT_LINE}\nmore\tof it\n"),
    "empty line": noted(f"{ORIGIN}\n18\n{ROOT_LINE}\n\nmore\n"),
    "root short": noted(f"{ORIGIN}\n18\n{base64.b64encode(bytes(31)).decode()}\n"),
    "root loose": noted(f"{ORIGIN}\n18\n{ROOT_LINE[:-2]}9=\n"),
    "two lines": noted(f"{ORIGIN}\n18\n"),
    "too long": SIGNED + f"{UNKNOWN}\n" * 200,
    "empty": "",
    "lone surrogate": SIGNED.replace("18", "\ud800"),
}


@pytest.mark.parametrize("case", BAD_NOTES)
def test_bad_note_is_refused_by_name(case: str) -> None:
    """Tampered, missigned or misspelled: refused as a checkpoint, never a crash."""
    with pytest.raises(VerificationError, match=r"^checkpoint"):
        Checkpoint.open(BAD_NOTES[case], KEY)


def test_another_log_is_refused() -> None:
    """Another key under the same origin; the same key under another origin."""
    with pytest.raises(VerificationError, match="not signed by the log's key"):
        Checkpoint.open(SIGNED, OTHER_KEY)
    with pytest.raises(VerificationError, match="is of the log"):
        Checkpoint.open(SIGNED, LogKey("elsewhere.example", KEY.public))


class Log:
    """A small log with its nodes kept."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[int, int], bytes] = {}
        for size, entry in enumerate(ENTRIES):
            for level, position, value in merkle.append(size, leaf_hash(entry), self.read):
                self.nodes[level, position] = value

    def read(self, level: int, position: int) -> bytes:
        """The hash of a complete subtree."""
        return self.nodes[level, position]

    def note(self, size: int) -> str:
        """The checkpoint of the first entries."""
        return sign(Checkpoint(ORIGIN, size, merkle.root(size, self.read)), PRIVATE)

    def receipt(self, index: int, size: int) -> str:
        """The receipt of one entry under one checkpoint."""
        return receipt(index, merkle.inclusion_proof(index, size, self.read), self.note(size))


LOG = Log()


def test_receipts_verify_offline() -> None:
    """Every entry under every later checkpoint; and only for its own bytes."""
    for size in range(1, len(ENTRIES) + 1):
        for index in range(size):
            text = LOG.receipt(index, size)
            assert verify_receipt(text, ENTRIES[index], KEY)[0] == index
            assert verify_receipt(text, ENTRIES[index], KEY)[1].size == size
            with pytest.raises(VerificationError, match="does not prove"):
                verify_receipt(text, ENTRIES[index] + b" ", KEY)


def test_receipt_bytes() -> None:
    """C2SP tlog-proof: the mark, the index, the hashes, a blank line, the checkpoint."""
    mark, index, *hashes = LOG.receipt(5, 11).partition("\n\n")[0].split("\n")
    assert (mark, index) == ("c2sp.org/tlog-proof@v1", "index 5")
    assert [base64.b64decode(line) for line in hashes] == merkle.inclusion_proof(5, 11, LOG.read)
    assert LOG.receipt(5, 11).endswith(LOG.note(11))


def edited(place: int, line: str | None) -> Callable[[str], str]:
    """A receipt with one of its lines changed, or left out."""

    def change(text: str) -> str:
        lines = text.split("\n")
        return "\n".join([*lines[:place], *([] if line is None else [line]), *lines[place + 1 :]])

    return change


BAD_RECEIPTS: dict[str, Callable[[str], str]] = {
    "index changed": edited(1, "index 4"),
    "index beyond the tree": edited(1, "index 11"),
    "index huge": edited(1, "index 9999999999999999"),
    "index negative": edited(1, "index -5"),
    "index missing": edited(1, None),
    "index spelled otherwise": edited(1, "index 05"),
    "index without its word": edited(1, "5"),
    "mark changed": edited(0, "c2sp.org/tlog-proof@v2"),
    "hash changed": edited(2, base64.b64encode(bytes(32)).decode()),
    "hash missing": edited(2, None),
    "hash no base64": edited(2, "!"),
    "hash short": edited(2, base64.b64encode(bytes(31)).decode()),
    "hash added": lambda text: text.replace("\n\n", f"\n{ROOT_LINE}\n\n", 1),
    "a hundred hashes": lambda text: text.replace("\n\n", f"\n{ROOT_LINE}" * 100 + "\n\n", 1),
    "checkpoint of another size": lambda text: text.partition("\n\n")[0] + "\n\n" + LOG.note(9),
    "checkpoint tampered": lambda text: text.replace("\n11\n", "\n12\n"),
    "checkpoint missing": lambda text: text.partition("\n\n")[0],
    "empty": lambda _: "",
}


@pytest.mark.parametrize("case", BAD_RECEIPTS)
def test_bad_receipt_is_refused_by_name(case: str) -> None:
    """Entry, index, proof or checkpoint changed: refused, never a crash."""
    text = BAD_RECEIPTS[case](LOG.receipt(5, 11))
    with pytest.raises(VerificationError, match=r"^(receipt|checkpoint)"):
        verify_receipt(text, ENTRIES[5], KEY)


def test_receipt_of_another_log_is_refused() -> None:
    """A true proof under a checkpoint that another key signed."""
    with pytest.raises(VerificationError, match=r"^checkpoint"):
        verify_receipt(LOG.receipt(5, 11), ENTRIES[5], OTHER_KEY)
