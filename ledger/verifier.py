r"""The auditor's verifier: every proof, signature and tile of a log, checked without trusting the server.

This file runs alone, with the standard library and ``cryptography``: copy it anywhere. The rest of the project
checks with it too. It holds the tree of RFC 9162 (section 2.1) and C2SP's signed-note, tlog-checkpoint,
tlog-cosignature, tlog-proof, tlog-policy and tlog-tiles. Of a whole log it also checks that no entry is earlier than
the one before it, but after a clock correction that every SRO concerned has signed.

    python verifier.py receipt RECEIPT ENTRY --log LOG.VKEY
    python verifier.py checkpoint CHECKPOINT --policy POLICY
    python verifier.py consistency KEPT CHECKPOINT PROOF --log LOG.VKEY
    python verifier.py tiles FOLDER --log LOG.VKEY --kept KEPT --json
    python verifier.py account PROOF --log LOG.VKEY

Where the log has replaced its key, ``--rotations FILE`` leads from the kept key to those before and after it:
what ``GET /v1/log-key-rotations`` answers, and what lies beside the published checkpoint.

Every input is a file of limited size. It ends with 0 if all of it holds, with 7 if anything does not or cannot be
read, and with 2 if the arguments are wrong.
"""

from __future__ import annotations

import base64
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TextIO

if TYPE_CHECKING:
    import argparse

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
ENTRY_BYTES_MAX: Final = 65_535
SIGNATURES_MAX: Final = 32
NOTE_BYTES_MAX: Final = 262_144
"""Signatures of post-quantum witnesses have nearly 5 kB each."""
PROOF_HASHES_MAX: Final = 63
RECEIPT_BYTES_MAX: Final = NOTE_BYTES_MAX + 65_536
POLICY_BYTES_MAX: Final = 262_144
POLICY_NAMES_MAX: Final = 256
TILE_WIDTH: Final = 256
TILE_BYTES_MAX: Final = TILE_WIDTH * HASH_BYTES
BUNDLE_BYTES_MAX: Final = TILE_WIDTH * (2 + ENTRY_BYTES_MAX)
ACCOUNT_BYTES_MAX: Final = 1 << 26
"""An account proof holds up to some thousand entries with their receipts."""
ROTATIONS_BYTES_MAX: Final = 1 << 22
LOSS_MAX: Final = 1 << 48
"""Units of loss of one run at one coordinate; more counts as a loss without bound."""
RECEIPT_MARK: Final = "c2sp.org/tlog-proof@v1"
FAILED: Final = 7
LEDGER_ACTOR: Final = "did:web:ledger.invalid"
"""The actor of entries that a book makes by itself, signed with the log's key."""
LOG_KEY_ROTATION: Final = "log_key_rotation"
LOG_KEY_SUSPENSION: Final = "log_key_suspension"
_OWN_KINDS: Final = ("lapse", "statement", LOG_KEY_ROTATION, LOG_KEY_SUSPENSION)
_KEY_BYTES: Final = 32
_ENTRIES_MAX: Final = 10**16
_SIZE: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
_NAME: Final = re.compile(r"[^\s+\x00-\x1f]+\Z")
_HOLDER: Final = re.compile(r"(global|lineage:(0|[1-9][0-9]{0,15}))\Z")
_PLACE: Final = r"did:[a-z0-9]{1,32}:[A-Za-z0-9._%-]{1,200}(:[A-Za-z0-9._%-]{1,200}){0,8}"
_PART: Final = r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}"
_PARTITION: Final = re.compile(rf"{_PLACE}/{_PART}/{_PART}\Z")
"""Every reference that the ledger ever accepted; the first books had no limit on a whole DID."""


class VerificationError(ValueError):
    """Input that breaks a rule of its format, or that does not prove what it claims.

    Attributes:
        field: where in the input, as a dotted path (``policy.line 3``); empty for the whole.
        rule: the rule it breaks, one plain sentence without a full stop.
    """

    def __init__(self, field: str, rule: str) -> None:
        """Name the field and the rule."""
        super().__init__(f"{field}: {rule}" if field else rule)
        self.field = field
        self.rule = rule


# --- The tree: RFC 9162, section 2.1


def leaf_hash(entry: bytes) -> bytes:
    """SHA-256(0x00 || entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], expected: bytes) -> bool:
    """Whether the proof leads from the leaf hash to the root (section 2.1.3.2)."""
    if not 0 <= index < size or not _hashes(leaf, *proof):
        return False
    fn, sn, at = index, size - 1, leaf
    for sibling in proof:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            at = node_hash(sibling, at)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            at = node_hash(at, sibling)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and at == expected


def verify_consistency(old: int, size: int, proof: Sequence[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the proof leads from the old root to the new one (section 2.1.4.2)."""
    if not 0 < old <= size or not _hashes(*proof):
        return False
    if old == size:
        return not proof and old_root == new_root
    steps = [old_root, *proof] if old & (old - 1) == 0 else proof
    if not steps:
        return False
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    first = second = steps[0]
    for sibling in steps[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            second = node_hash(second, sibling)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and first == old_root and second == new_root


def _hashes(*values: bytes) -> bool:
    return all(len(value) == HASH_BYTES for value in values)


# --- The state: a sparse Merkle tree of records

STATE_DEPTH: Final = 64
EMPTY_STATE: Final = bytes(HASH_BYTES)
"""The hash of a subtree without records, at any depth. No known input has this SHA-256."""
_STATE: Final = b"epsilon-ledger/state/"


def state_key(name: bytes) -> bytes:
    """The hashed name of a record."""
    return hashlib.sha256(_STATE + b"key\n" + name).digest()


def state_place(key: bytes) -> int:
    """The place of the record of a hashed name: the first 64 bits."""
    return int.from_bytes(key[: STATE_DEPTH // 8], "big")


def state_entry_secret(entry: bytes) -> bytes:
    """What only the readers of an entry can compute; the log's own hashes of it are public."""
    return hashlib.sha256(_STATE + b"entry\n" + entry).digest()


def state_salt(secret: bytes, name: bytes) -> bytes:
    """The salt of a record: of the last entry that touched it, and of the record's name."""
    return hashlib.sha256(_STATE + b"salt\n" + secret + name).digest()


def state_leaf_hash(salt: bytes, record: bytes) -> bytes:
    """SHA-256(0x02 || salt || record)."""
    return hashlib.sha256(b"\x02" + salt + record).digest()


def state_place_hash(leaves: Sequence[tuple[bytes, bytes]]) -> bytes:
    """SHA-256(0x03 || key || leaf hash || ...) over the records of one place, by key; of no record, the empty hash."""
    return hashlib.sha256(b"\x03" + b"".join(key + leaf for key, leaf in leaves)).digest() if leaves else EMPTY_STATE


def state_node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node, at least one side of which holds records: SHA-256(0x04 || left || right)."""
    return hashlib.sha256(b"\x04" + left + right).digest()


def state_root(key: bytes, leaves: Sequence[tuple[bytes, bytes]], siblings: Mapping[int, bytes]) -> bytes:
    """The root to which the place of a hashed name leads.

    Args:
        key: the hashed name.
        leaves: every record at its place, as hashed name and leaf hash, by name.
        siblings: by depth, the hashes beside the way from the root; the others are of empty subtrees.
    """
    place, at = state_place(key), state_place_hash(leaves)
    for depth in range(STATE_DEPTH - 1, -1, -1):
        sibling = siblings.get(depth, EMPTY_STATE)
        if at != EMPTY_STATE or sibling != EMPTY_STATE:
            right = place >> (STATE_DEPTH - 1 - depth) & 1
            at = state_node_hash(sibling, at) if right else state_node_hash(at, sibling)
    return at


# --- Keys and signed notes: C2SP signed-note and tlog-cosignature


@dataclass(frozen=True, slots=True)
class Key(ABC):
    """A public key under its name, in the form of a ``vkey``."""

    TYPE: ClassVar[bytes]
    WHAT: ClassVar[str]
    name: str
    public: bytes

    @classmethod
    def parse(cls, vkey: str) -> Self:
        """Read a ``vkey``; the exact inverse of :attr:`vkey`. Raises: VerificationError."""
        name, _, rest = vkey.partition("+")
        if not _NAME.match(name) or rest[8:9] != "+" or not _encodable(vkey):
            raise VerificationError("vkey", "must be 'name+id+key'")
        raw = from_base64(rest[9:], "vkey")
        key = cls(name, raw[1:])
        # Written back it has its type and its id: both are compared so.
        if len(key.public) != _KEY_BYTES or key.vkey != vkey:
            raise VerificationError("vkey", f"is not {cls.WHAT} under its own id")
        return key

    @property
    def id(self) -> bytes:
        """The four bytes that a signature line starts with: of SHA-256(name || LF || type || public key)."""
        return hashlib.sha256(self.name.encode() + b"\n" + self.TYPE + self.public).digest()[:4]

    @property
    def vkey(self) -> str:
        """``name+hex id+base64(type || key)``."""
        return f"{self.name}+{self.id.hex()}+{to_base64(self.TYPE + self.public)}"

    @abstractmethod
    def verifies(self, text: str, signature: bytes) -> bool:
        """Whether this is the key's signature over a note's text."""

    def verifies_bytes(self, message: bytes, signature: bytes) -> bool:
        """Whether this is the key's Ed25519 signature over a message."""
        # Loaded here, so that a command that only reports an error does not wait for it.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class LogKey(Key):
    """The key of a log, whose name is the log's origin; it signs checkpoints (type 0x01, Ed25519)."""

    TYPE = b"\x01"
    WHAT = "an Ed25519 key"

    @property
    def origin(self) -> str:
        """The log's name."""
        return self.name

    def verifies(self, text: str, signature: bytes) -> bool:
        """Whether this is the key's signature over a note's text."""
        return self.verifies_bytes(text.encode(), signature)


@dataclass(frozen=True, slots=True)
class WitnessKey(Key):
    """The key of a witness; its cosignature is a time and a signature over both (type 0x04, cosignature/v1)."""

    TYPE = b"\x04"
    WHAT = "an Ed25519 cosigner's key"

    def verifies(self, text: str, signature: bytes) -> bool:
        """Whether this is the witness's cosignature over a checkpoint's text."""
        time = int.from_bytes(signature[:8], "big")
        return 0 < time < 1 << 63 and self.verifies_bytes(
            f"cosignature/v1\ntime {time}\n{text}".encode(), signature[8:]
        )


@dataclass(frozen=True, slots=True)
class Note:
    """A text and its signature lines: each a key's name, and its id with the signature."""

    text: str
    lines: tuple[tuple[str, bytes], ...]

    @classmethod
    def parse(cls, note: str) -> Note:
        """Read a signed note, without checking its signatures. Raises: VerificationError."""
        if not _encodable(note):
            raise VerificationError("checkpoint", "is not UTF-8")
        if len(note.encode()) > NOTE_BYTES_MAX:
            raise VerificationError("checkpoint", f"is too long: it may have {NOTE_BYTES_MAX} bytes")
        text, blank, signatures = note.rpartition("\n\n")
        if not blank or not text or not signatures.endswith("\n"):
            raise VerificationError("checkpoint", "is not a signed note")
        if any(character < " " and character != "\n" for character in note):
            raise VerificationError("checkpoint", "holds a control character")
        return cls(text + "\n", signature_lines(signatures))

    def signature_of(self, key: Key) -> bytes | None:
        """The key's signature, None if the note has none of it.

        Raises:
            VerificationError: if there is one that does not verify.
        """
        found = None
        for name, raw in self.lines:
            if name == key.name and raw[:4] == key.id:
                if not key.verifies(self.text, raw[4:]):
                    raise VerificationError("checkpoint", f"bears a signature of {key.name} that does not verify")
                found = raw[4:]
        return found


def signature_lines(text: str) -> tuple[tuple[str, bytes], ...]:
    """Signature lines, each ``— name base64(id || signature)`` and a newline. Raises: VerificationError."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > SIGNATURES_MAX:
        raise VerificationError("checkpoint", f"has too many signatures: {SIGNATURES_MAX} are read")
    return tuple(_signature_line(line) for line in lines)


def _signature_line(line: str) -> tuple[str, bytes]:
    mark, _, rest = line.partition(" ")
    name, _, value = rest.partition(" ")
    if mark != "—":
        raise VerificationError("checkpoint", "has a signature line that does not start with a dash")
    raw = from_base64(value, "checkpoint")
    if not _NAME.match(name) or len(raw) <= 4:
        raise VerificationError("checkpoint", "has a signature line without a name, a key id and a signature")
    return name, raw


# --- Whom to trust: C2SP tlog-policy


@dataclass(frozen=True, slots=True)
class Policy:
    """Which logs are known, which witnesses, and whose cosignatures a checkpoint must bear.

    Attributes:
        logs: any one of these signs.
        witnesses: keys under the names that the policy gives them.
        groups: how many of which members, each a witness or a group named before.
        quorum: a witness or a group; None if no cosignature is required.
        sizes: of a log's key that follows or precedes another one, the first and the last size that it signs a
            checkpoint of; None where the last is not known.
        revoked: of a log's key that was stolen, the last size of a checkpoint that it signed before.
    """

    logs: tuple[LogKey, ...]
    witnesses: Mapping[str, WitnessKey] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    quorum: str | None = None
    sizes: Mapping[LogKey, tuple[int, int | None]] = field(default_factory=dict)
    revoked: Mapping[LogKey, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read a policy file. Raises: VerificationError, naming the line."""
        if len(text.encode(errors="surrogateescape")) > POLICY_BYTES_MAX:
            raise VerificationError("policy", f"is too long: it may have {POLICY_BYTES_MAX} bytes")
        reader = _PolicyReader()
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
            if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line):
                raise VerificationError(f"policy.line {number}", "holds a control character")
            words = re.findall(r"[^ \t]+", line)
            if words and not words[0].startswith("#"):
                try:
                    reader.take(words)
                except VerificationError as error:
                    raise VerificationError(f"policy.line {number}", str(error)) from None
        return reader.policy()

    def cosigners(self, note: Note) -> tuple[str, ...]:
        """The witnesses, by the policy's names, that cosigned. Raises: VerificationError, if a cosignature is wrong."""
        return tuple(name for name, key in self.witnesses.items() if note.signature_of(key) is not None)

    def suffices(self, cosigners: Sequence[str]) -> bool:
        """Whether these witnesses are a quorum."""
        return self.quorum is None or self._witnessed(self.quorum, frozenset(cosigners))

    def signs(self, key: LogKey, size: int) -> bool:
        """Whether a log's key signs checkpoints of this size: then it was in force, and not revoked."""
        first, last = self.sizes.get(key, (0, None))
        return first <= size and (last is None or size <= last) and size <= self.revoked.get(key, size)

    def first_keys(self, origin: str) -> tuple[LogKey, ...]:
        """The first keys of a log, as far as they are known."""
        return tuple(one for one in self.logs if one.origin == origin and self.signs(one, 0))

    def key_starts(self, origin: str) -> list[tuple[int, LogKey]]:
        """The keys of a log whose rotations are known, in order, each after the least size that it signs."""
        found = ((first, key) for key, (first, _) in self.sizes.items() if key.origin == origin)
        return sorted(found, key=lambda one: one[0])

    def _witnessed(self, name: str, cosigners: frozenset[str]) -> bool:
        if name in self.witnesses:
            return name in cosigners
        threshold, members = self.groups[name]
        return sum(self._witnessed(member, cosigners) for member in members) >= threshold


class _PolicyReader:
    """The lines of a policy file, each of which may refer to those before it."""

    def __init__(self) -> None:
        self._logs: list[LogKey] = []
        self._witnesses: dict[str, WitnessKey] = {}
        self._groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._members: set[str] = set()
        self._quorum: list[str] = []

    def take(self, words: list[str]) -> None:
        """One line. Raises: VerificationError."""
        match words:
            case ["log", vkey] | ["log", vkey, _]:
                key = LogKey.parse(vkey)
                if key.public in {one.public for one in self._logs}:
                    raise VerificationError("", "names a log's key twice")
                self._logs.append(key)
            case ["witness", name, vkey] | ["witness", name, vkey, _]:
                self._name(name)
                witness = WitnessKey.parse(vkey)
                if witness.public in {one.public for one in self._witnesses.values()}:
                    raise VerificationError("", "names a witness's key twice")
                self._witnesses[name] = witness
            case ["group", name, threshold, *members] if members:
                self._name(name)
                self._groups[name] = self._threshold(threshold, members), tuple(members)
            case ["quorum", name] if name == "none" or name in self._witnesses or name in self._groups:
                self._quorum.append(name)
            case _:
                raise VerificationError(
                    "", "is none of: log, witness, group, quorum, each with what was named before it"
                )

    def policy(self) -> Policy:
        """The parsed policy. Raises: VerificationError."""
        if len(self._quorum) != 1:
            raise VerificationError("policy", "must have exactly one quorum line")
        quorum = None if self._quorum[0] == "none" else self._quorum[0]
        return Policy(tuple(self._logs), self._witnesses, self._groups, quorum)

    def _name(self, name: str) -> None:
        if name == "none" or name in self._witnesses or name in self._groups:
            raise VerificationError("", "gives a name that is taken")
        if len(self._witnesses) + len(self._groups) >= POLICY_NAMES_MAX:
            raise VerificationError("", f"is beyond the {POLICY_NAMES_MAX} witnesses and groups allowed")

    def _threshold(self, threshold: str, members: list[str]) -> int:
        for member in members:
            if member in self._members or (member not in self._witnesses and member not in self._groups):
                raise VerificationError("", "has a member that was not named before, or is a member already")
            self._members.add(member)
        if threshold in {"any", "all"}:
            return 1 if threshold == "any" else len(members)
        if not re.fullmatch(r"[1-9][0-9]{0,3}", threshold) or int(threshold) > len(members):
            raise VerificationError("", "asks for fewer than one or more than all of the group's members")
        return int(threshold)


# --- Checkpoints and receipts: C2SP tlog-checkpoint and tlog-proof


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The log's claim: at this size the tree has this root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{to_base64(self.root)}\n"

    @classmethod
    def open(cls, note: str, trust: LogKey | Policy) -> Checkpoint:
        """Read a signed note; unknown keys are ignored, a wrong signature of a known one is not.

        Raises:
            VerificationError: if the note is not a checkpoint, names another origin, lacks the log's signature or a
                quorum of cosignatures, or bears a signature of a known key that does not verify.
        """
        policy = _as_policy(trust)
        signed = Note.parse(note)
        checkpoint = cls._read(signed.text)
        keys = [key for key in policy.logs if key.origin == checkpoint.origin]
        if not keys:
            known = ", ".join(repr(key.origin) for key in policy.logs) or "any that the policy names"
            raise VerificationError("checkpoint", f"is of the log {checkpoint.origin[:80]!r}, not {known}")
        signers = [key for key in keys if signed.signature_of(key) is not None]
        if not signers:
            raise VerificationError("checkpoint", "is not signed by the log's key")
        if not any(policy.signs(key, checkpoint.size) for key in signers):
            rule = f"of {checkpoint.size} entries is signed by a key of the log that signs none of this size: it was"
            raise VerificationError("checkpoint", f"{rule} replaced before, or came later")
        if not policy.suffices(policy.cosigners(signed)):
            raise VerificationError("checkpoint", f"lacks the cosignatures that the quorum {policy.quorum} asks for")
        return checkpoint

    @classmethod
    def _read(cls, text: str) -> Checkpoint:
        lines = text.removesuffix("\n").split("\n")
        if len(lines) < 3 or not all(lines):
            raise VerificationError("checkpoint", "is not three lines or more: origin, tree size, root hash")
        if not _SIZE.match(lines[1]):
            raise VerificationError("checkpoint", "has no tree size on its second line")
        root = from_base64(lines[2], "checkpoint")
        if len(root) != HASH_BYTES:
            raise VerificationError("checkpoint", "has no root hash on its third line")
        return cls(lines[0], int(lines[1]), root)


def verify_receipt(text: str, entry: bytes, trust: LogKey | Policy) -> tuple[int, Checkpoint]:
    """The entry's index and the checkpoint it is under. Raises: VerificationError, if the receipt does not prove it."""
    if len(text) > RECEIPT_BYTES_MAX:
        raise VerificationError("receipt", f"is too long: it may have {RECEIPT_BYTES_MAX} bytes")
    head, blank, note = text.partition("\n\n")
    mark, *lines = head.split("\n")
    if not blank or mark != RECEIPT_MARK:
        raise VerificationError("receipt", f"is not a {RECEIPT_MARK}")
    if lines and lines[0].startswith("extra "):
        from_base64(lines.pop(0).removeprefix("extra "), "receipt")
    word, _, number = lines[0].partition(" ") if lines else ("", "", "")
    if word != "index" or not _SIZE.match(number):
        raise VerificationError("receipt", "has no index on its second line")
    proof = read_proof(lines[1:], "receipt")
    checkpoint = Checkpoint.open(note, trust)
    if not verify_inclusion(leaf_hash(entry), int(number), checkpoint.size, proof, checkpoint.root):
        raise VerificationError("receipt", f"does not prove the entry at index {number}")
    return int(number), checkpoint


def _as_policy(trust: LogKey | Policy) -> Policy:
    return trust if isinstance(trust, Policy) else Policy((trust,))


def with_rotations(trust: LogKey | Policy, text: str) -> Policy:
    """The same trust in all keys of a log whose key was replaced: each signs only its own sizes.

    Each rotation is an entry, and the last one under checkpoints of the key that it retires: the checkpoint over it is
    the only one that both keys sign. So a client that kept any key of the log finds the others, forward from the
    replaced key and back from its replacement. No other entry of the log is checked here: that the old key's holder
    made no second history, kept checkpoints and witnesses show.

    A rotation may have a window: over so many entries more the log signs by both keys. There a checkpoint by the old
    key alone counts for those that trust that key and no later one; those that trust the new key need its signature.
    A rotation may revoke a key as of a size: no larger checkpoint by that key counts, nor one from before the rotation.

    Args:
        trust: at least one key of the log, or its policy.
        text: the rotations, as the service answers them.

    Raises:
        VerificationError: if one is not proven, they do not follow one another, lead to no key that is trusted, or are
            other ones than ``trust`` knows already.
    """
    policy = _as_policy(trust)
    links = log_key_changes(text)
    if not links:
        return policy
    keys = [links[0].old, *(one.new for one in links)]
    indexes = [one.index for one in links]
    if [one.old for one in links] != keys[:-1] or indexes != sorted(set(indexes)) or len(set(keys)) < len(keys):
        raise VerificationError("rotations", "do not follow one another")
    if not set(keys) & set(policy.logs):
        raise VerificationError("rotations", "are not those of a key of the log that is trusted")
    ends = [0, *(index + 1 for index in indexes)]
    known = policy.key_starts(keys[0].origin)
    if any(one != other for one, other in zip(known, zip(ends, keys, strict=True), strict=False)):
        raise VerificationError("rotations", "are other ones than those that are known")
    if len(keys) <= len(known):
        return policy
    sizes = {key: (first, last) for key, first, last in zip(keys, ends, [*ends[1:], None], strict=True)}
    newest = links[-1]
    if set(keys) & set(policy.logs) == {newest.old}:
        sizes[newest.old] = ends[-2], ends[-1] + newest.overlap
    logs = tuple(dict.fromkeys((*policy.logs, *keys)))
    revoked = {**policy.revoked, **_revoked(links, keys)}
    return replace(policy, logs=logs, sizes={**policy.sizes, **sizes}, revoked=revoked)


@dataclass(frozen=True, slots=True)
class LogKeyChange:
    """A proven rotation: where it is, both keys, over how many entries more both sign, and which key it revokes."""

    index: int
    old: LogKey
    new: LogKey
    overlap: int
    revokes: tuple[str, int] | None


def _revoked(links: Sequence[LogKeyChange], keys: Sequence[LogKey]) -> dict[LogKey, int]:
    """The last size that each revoked key signed; of several the least. Raises: VerificationError."""
    by_id = {_thumbprint({"crv": "Ed25519", "kty": "OKP", "x": _base64url(key.public)}): key for key in keys}
    revoked: dict[LogKey, int] = {}
    for one in links:
        if one.revokes is not None:
            key_id, size = one.revokes
            if key_id not in by_id:
                raise VerificationError("rotations", "revoke a key that the log never had")
            revoked[by_id[key_id]] = min(size, revoked.get(by_id[key_id], size))
    return revoked


def log_key_changes(text: str) -> tuple[LogKeyChange, ...]:
    """The rotations of a log in order, each proven by itself. Raises: VerificationError."""
    found = _fields(_parsed(text, "rotations"), "rotations", {"rotations": list, "v": int})["rotations"]
    return tuple(_rotation(one, f"rotations[{place}]") for place, one in enumerate(found))


def _rotation(one: object, where: str) -> LogKeyChange:
    """One rotation; both keys sign the checkpoint that ends with its entry. Raises: VerificationError."""
    found = _fields(one, where, {"entry": str, "receipt": str})
    data = from_base64(found["entry"], where)
    entry = _of_type(_parsed(to_text(data, where), where), dict, where)
    request = _request(entry, LOG_KEY_ROTATION, where)
    origin = found["receipt"].partition("\n\n")[2].partition("\n")[0]
    try:
        old, new = (LogKey(origin, _from_base64url(request[name]["x"])) for name in ("retires", "key"))
        overlap, revokes = int(request.get("overlap", 0)), request.get("revokes")
        stolen = None if revokes is None else (str(revokes["key"]), int(revokes["size"]))
    except (ValueError, LookupError, TypeError, OverflowError):
        raise VerificationError(where, "names no keys") from None
    for key in (old, new):
        if len(key.public) != HASH_BYTES:
            raise VerificationError(where, f"names a key of {len(key.public)} bytes, not {HASH_BYTES}")
        index, checkpoint = verify_receipt(found["receipt"], data, key)
        if checkpoint.size != index + 1:
            raise VerificationError(where, "is not under the checkpoint that ends with it")
    return LogKeyChange(index, old, new, overlap, stolen)


def check_extends(kept: Checkpoint, now: Checkpoint, proof: Sequence[bytes]) -> None:
    """Check that a log extends a kept checkpoint.

    Raises:
        VerificationError: with the way in which it does not.
    """
    _check_heads(kept, now)
    proven = not proof if kept.size == 0 else verify_consistency(kept.size, now.size, proof, kept.root, now.root)
    if not proven:
        raise VerificationError(
            "proof", f"does not lead from the {kept.size} entries kept to the {now.size} signed now"
        )


def _check_heads(kept: Checkpoint, now: Checkpoint) -> None:
    if kept.origin != now.origin:
        raise VerificationError(
            "checkpoint", f"is of the log {now.origin[:80]!r}, the one kept of {kept.origin[:80]!r}"
        )
    if kept.size > now.size:
        raise VerificationError(
            "checkpoint", f"is of {now.size} entries, and {kept.size} were signed before: some are gone"
        )
    if kept.size == now.size and kept.root != now.root:
        raise VerificationError("checkpoint", f"is a fork: the log signed two roots for {now.size} entries")


def read_proof(lines: Sequence[str], where: str) -> list[bytes]:
    """The hashes of a proof, one a line in base64. Raises: VerificationError."""
    if len(lines) > PROOF_HASHES_MAX:
        raise VerificationError(where, f"has more than {PROOF_HASHES_MAX} hashes")
    proof = [from_base64(line, where) for line in lines]
    if not _hashes(*proof):
        raise VerificationError(where, "has a hash that is not one of 32 bytes")
    return proof


# --- Tiles: C2SP tlog-tiles

ROTATIONS: Final = "log-key-rotations"
"""The path of a log's rotations, beside its checkpoint; there is no file if the log never had another key."""
Fetch = Callable[[str, int], bytes | None]
"""The bytes at a path, None if there are none; at most one more than the limit needs to be read."""


def tile_path(level: int | None, index: int, width: int) -> str:
    """The path of a tile of hashes, or, without a level, of a bundle of entries: ``tile/0/x001/x234/067.p/17``."""
    digits = f"{index:03}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[place : place + 3] for place in range(0, len(digits), 3)]
    where = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
    part = "" if width == TILE_WIDTH else f".p/{width}"
    return f"tile/{'entries' if level is None else level}/{where}{part}"


def read_bundle(data: bytes, where: str) -> list[bytes]:
    """The entries of a bundle, each after its length in two bytes, big-endian. Raises: VerificationError."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + 2
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data) or len(entries) == TILE_WIDTH:
            raise VerificationError(where, "is not a bundle of whole entries")
        entries.append(data[start:at])
    return entries


def verify_tiles(fetch: Fetch, trust: LogKey | Policy, kept: Checkpoint | None = None) -> Checkpoint:
    """Recompute a published log from its entry bundles, and compare every hash tile, the root and a kept root.

    Args:
        fetch: reads what is published, by its path below the log's prefix.
        trust: the log's key, or a policy.
        kept: an older checkpoint of this log, that its first entries must still make.

    Raises:
        VerificationError: naming the first file that is wrong.
    """
    note = fetch("checkpoint", NOTE_BYTES_MAX)
    if note is None:
        raise VerificationError("checkpoint", "is missing")
    rotations = fetch(ROTATIONS, ROTATIONS_BYTES_MAX)
    policy = _as_policy(trust) if rotations is None else with_rotations(trust, to_text(rotations, "rotations"))
    checkpoint = Checkpoint.open(to_text(note, "checkpoint"), policy)
    if kept is not None:
        _check_heads(kept, checkpoint)
    tiles, times = _Tiles(fetch), EntryTimes(policy.first_keys(checkpoint.origin))
    for start in range(0, checkpoint.size, TILE_WIDTH):
        width = min(TILE_WIDTH, checkpoint.size - start)
        for index, entry in enumerate(_bundle(fetch, start // TILE_WIDTH, width), start):
            if kept is not None and kept.size == index and tiles.root() != kept.root:
                raise VerificationError(
                    "checkpoint", f"is a fork: its first {index} entries are not those of the one kept"
                )
            tiles.add(0, leaf_hash(entry))
            times.add(index, entry)
    tiles.finish()
    if tiles.root() != checkpoint.root:
        raise VerificationError("checkpoint", f"has another root than the {checkpoint.size} entries have")
    if times.wrong is not None:
        raise VerificationError(*times.wrong)
    starts = policy.key_starts(checkpoint.origin)
    if times.rotations != [(first, _base64url(key.public)) for first, key in starts if 0 < first <= checkpoint.size]:
        raise VerificationError("rotations", "are not those that the log's entries record")
    return checkpoint


def _bundle(fetch: Fetch, index: int, width: int) -> list[bytes]:
    where, data = _partial_or_full(fetch, None, index, width, BUNDLE_BYTES_MAX)
    entries = read_bundle(data, where)
    if len(entries) < width or (len(entries) > width and where.endswith(f".p/{width}")):
        raise VerificationError(where, f"has {len(entries)} entries, not {width}")
    return entries[:width]


def _partial_or_full(fetch: Fetch, level: int | None, index: int, width: int, limit: int) -> tuple[str, bytes]:
    """A partial tile may be gone once the full one is there."""
    for where in dict.fromkeys((tile_path(level, index, width), tile_path(level, index, TILE_WIDTH))):
        data = fetch(where, limit)
        if data is not None:
            if len(data) > limit:
                raise VerificationError(where, f"has more than {limit} bytes")
            return where, data
    raise VerificationError(tile_path(level, index, width), "is missing")


class _Tiles:
    """The rightmost tile of each level as the leaves make it; a full one is compared, and passes its root up."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._rows: list[list[bytes]] = []
        self._full: list[int] = []

    def add(self, level: int, value: bytes) -> None:
        """One more hash at a level."""
        if level == len(self._rows):
            self._rows.append([])
            self._full.append(0)
        row = self._rows[level]
        row.append(value)
        if len(row) == TILE_WIDTH:
            self._compare(level)
            whole = _fold(row, None)
            assert whole is not None
            self._full[level] += 1
            row.clear()
            self.add(level + 1, whole)

    def finish(self) -> None:
        """Compare the partial tiles."""
        for level, row in enumerate(self._rows):
            if row:
                self._compare(level)

    def root(self) -> bytes:
        """The root of all leaves so far."""
        root = None
        for row in self._rows:
            root = _fold(row, root)
        return root or EMPTY_ROOT

    def _compare(self, level: int) -> None:
        row, index = self._rows[level], self._full[level]
        where, data = _partial_or_full(self._fetch, level, index, len(row), TILE_BYTES_MAX)
        width = len(row) if where.endswith(f".p/{len(row)}") else TILE_WIDTH
        if len(data) != width * HASH_BYTES:
            raise VerificationError(where, f"has {len(data)} bytes, not {width * HASH_BYTES}")
        for place, value in enumerate(row):
            if data[place * HASH_BYTES : (place + 1) * HASH_BYTES] != value:
                first = (index * TILE_WIDTH + place) * TILE_WIDTH**level
                what = f"entry {first}" if level == 0 else f"entries {first} to {first + TILE_WIDTH**level - 1}"
                raise VerificationError(where, f"has another hash than {what} as published")


def _fold(row: list[bytes], right: bytes | None) -> bytes | None:
    """The complete subtrees over a row of hashes, joined with what is to the right of them."""
    while row:
        if len(row) & 1:
            right = row[-1] if right is None else node_hash(row[-1], right)
        row = [node_hash(*pair) for pair in zip(row[::2], row[1::2], strict=False)]
    return right


# --- The signatures and times of entries


class KeyHistory:
    """The keys in a book with their owners and times, as the entries up to a place state them.

    A rotation brings a key and ends another one at a date, a revocation ends some for good, a suspension until they are
    resumed, and a recovery ends all that an organisation has. A clean room's key comes with its charge, and the log's
    own key, of which the first is no entry's, ends with the entry that brings the next one.
    """

    def __init__(self) -> None:
        """No key yet."""
        self._keys: dict[str, tuple[str, dict[str, str]]] = {}
        self._rooms: set[str] = set()
        self._starts: dict[str, int] = {}
        self._until: dict[str, int] = {}
        self._stopped: dict[str, str] = {}
        self._revoked: set[str] = set()
        self.log_stopped = False

    def signer(self, key_id: str, time: int, *, clean_rooms: bool = False) -> tuple[str, dict[str, str]]:
        """The owner of a key that signs at a time (ms), and the key. Raises: VerificationError."""
        if key_id not in self._keys or (key_id in self._rooms and not clean_rooms):
            raise VerificationError("", f"is signed by the key {key_id[:80]}, which no organisation has registered")
        never = self._starts.get(key_id, time) > time or self._until.get(key_id, time + 1) <= time
        if never or key_id in self._revoked or key_id in self._stopped:
            raise VerificationError("", f"is signed by the key {key_id}, which is not in force there")
        return self._keys[key_id]

    def log_key(self, key_id: str, first: Sequence[dict[str, str]]) -> dict[str, str]:
        """The log's key that signs an own entry; ``first`` are those it began with. Raises: VerificationError."""
        began = next((one for one in first if _thumbprint(one) == key_id), None)
        owner, key = (LEDGER_ACTOR, began) if began is not None else self._keys.get(key_id, ("", None))
        if owner != LEDGER_ACTOR or key is None or key_id in self._revoked:
            raise VerificationError("", f"is signed by the key {key_id[:80]}, which is not the log's there")
        return key

    def note(self, kind: str, actor: str, time: int, request: dict[str, Any]) -> None:
        """Apply a permitted or pending entry's changes of keys. Raises: LookupError, TypeError."""
        if kind == "organisation":
            self._add(request["organisation"], request["key"])
        elif kind == "key_rotation":
            self._starts[self._add(actor, request["key"])] = request.get("starts", time)
            self._until[request["retires"]] = request["until"]
        elif kind == "key_revocation":
            self._revoked.update(request["keys"])
        elif kind == "key_suspension":
            for key_id in request["keys"]:
                self._stopped.pop(key_id, "")
            self._stopped.update(dict.fromkeys(request["keys"], actor) if request["suspended"] else {})
        elif kind == "key_recovery":
            owner = request["organisation"]
            own = (one for one, (whose, _) in self._keys.items() if whose == owner)
            self._revoked.update(one for one in own if one not in self._rooms)
            self._starts[self._add(owner, request["key"])] = time
        elif kind == LOG_KEY_SUSPENSION:
            self.log_stopped = request["suspended"]
        elif kind == LOG_KEY_ROTATION:
            self.log_stopped = False
            self._revoked.add(_thumbprint(request["retires"]))
            self._add(actor, request["key"])
        elif kind in {"charge", "model_opening"}:
            self._rooms.add(self._add(actor, request["clean_room"]["signing"]))

    def _add(self, owner: str, key: dict[str, str]) -> str:
        key_id = _thumbprint(key)
        self._keys[key_id] = owner, key
        return key_id

    def go_back(self, ahead: int, time: int) -> None:
        """Time goes back: a key that signed goes on, and one that was retired stays so."""
        self._starts = {one: min(at, time) if at <= ahead else at for one, at in self._starts.items()}
        self._until = {one: min(at, time) if at <= ahead else at for one, at in self._until.items()}


def _thumbprint(key: dict[str, str]) -> str:
    """RFC 7638, of a JWK that has no other members."""
    return _base64url(hashlib.sha256(_canonical(key)).digest())


class EntryTimes:
    """The times of a book's entries, which never decrease but after a clock correction; of other logs, nothing.

    If the log's keys are given, the signature over the command of every entry is verified too, with the key that
    was in force there. A correction names the newest entry's time and the one from which entries go on. Every SRO with
    an open partition has signed it: the issuers of the policies of the domains that have a partition that is not
    retired, and its sender.

    Attributes:
        wrong: the place and text of the first error; None as long as there is none.
        rotations: each size from which on another key signs the log of a book, and that key.
    """

    def __init__(self, logs: Sequence[LogKey] = ()) -> None:
        """Begin before the first entry; one of ``logs``, with which the log began, signs the book's own entries."""
        self.wrong: tuple[str, str] | None = None
        self.rotations: list[tuple[int, str]] = []
        self._least = 0
        self._keys = KeyHistory()
        self._logs = [{"crv": "Ed25519", "kty": "OKP", "x": _base64url(one.public)} for one in logs]
        self._of_book = False
        self._ids: set[bytes] = set()
        self._issuers: dict[str, str] = {}
        self._domains: dict[tuple[str, str], str] = {}
        self._open: dict[str, tuple[str, str]] = {}

    def add(self, index: int, data: bytes) -> None:
        """Take the next entry."""
        import json

        where = f"entry {index}"
        try:
            entry = json.loads(data)
            kind, time, body = entry["kind"], int(entry["time"]), entry["body"]
            actor, request, permitted = entry["actor"], body["request"], body["outcome"] == "permitted"
            self._of_book = self._of_book or (index == 0 and kind == "organisation")
        except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
            # Of another log an entry may be anything.
            if self._logs and self._of_book:
                self.wrong = self.wrong or (where, "is no entry of a book")
            return
        if self.wrong is None and time < self._least:
            self.wrong = where, "its time lies before the time of the entry before it"
        self._least = max(self._least, time)
        try:
            if self._logs and self._of_book:
                self._check_signature(index, entry)
            if permitted or body["outcome"] == "pending":
                self._keys.note(kind, actor, time, request)
            if permitted and kind == LOG_KEY_ROTATION and self._of_book:
                self.rotations.append((index + 1, request["key"]["x"]))
            if permitted and kind == "clock_correction":
                self._correct(time, actor, entry["id"], request)
            elif permitted:
                self._note(kind, actor, request, body)
        except (VerificationError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            self.wrong = self.wrong or (where, f"{kind}: {error}")

    def _check_signature(self, index: int, entry: dict[str, Any]) -> None:
        """Verify the signature over an entry's command, whose id no other entry bears.

        Raises:
            VerificationError, LookupError, TypeError.
        """
        # Whoever repeats a signed command as another entry needs no key. Half a digest takes less memory than an id.
        hashed = hashlib.sha256(entry["id"].encode()).digest()[:16]
        if hashed in self._ids:
            raise VerificationError("", f"the id {str(entry['id'])[:128]} is of an earlier entry")
        self._ids.add(hashed)
        actor, key_id = entry["actor"], entry["key_id"]
        request = entry["body"]["request"]
        if self._keys.log_stopped and entry["kind"] not in {LOG_KEY_ROTATION, LOG_KEY_SUSPENSION}:
            raise VerificationError("", "follows the suspension of the log's key, which nothing has ended")
        if entry["kind"] in _OWN_KINDS:
            owner, key = LEDGER_ACTOR, self._keys.log_key(key_id, self._logs)
        elif index == 0:
            owner, key = request["organisation"], request["key"]
        else:
            owner, key = self._keys.signer(key_id, entry["time"], clean_rooms=True)
            owner = "the log" if owner == LEDGER_ACTOR else owner
        if owner != actor:
            raise VerificationError("", f"is signed by a key of {owner}, and {actor} is named")
        if entry["kind"] == LOG_KEY_ROTATION and key != request["retires"]:
            raise VerificationError("", "retires another key than the one that signs it")
        command = {"actor": actor, "body": request, "id": entry["id"], "key_id": key_id, "kind": entry["kind"], "v": 1}
        header = _check_jws(owner, key, entry["signature"], _canonical(command))
        if header["kid"] != key_id or header.get("jti", entry["id"]) != entry["id"]:
            raise VerificationError("", "bears a signature that was made for another command")

    def _note(self, kind: str, actor: str, request: dict[str, Any], body: dict[str, Any]) -> None:
        """Which SRO a partition has."""
        if kind == "policy":
            self._issuers[body["header"]["domain"]] = actor
        elif kind == "dataset":
            self._domains[actor, body["header"]["id"]] = body["header"]["domain"]
        elif kind == "partition":
            dataset = request["provider"], request["dataset"]
            self._open[f"{request['provider']}/{request['dataset']}/{request['partition']}"] = dataset
        elif kind == "retirement":
            self._open.pop(request["partition"], None)

    def _correct(self, time: int, actor: str, name: str, request: dict[str, Any]) -> None:
        """Go back in time. Raises: VerificationError, LookupError."""
        stated = {one: request[one] for one in ("ahead", "reason", "time")}
        if not (isinstance(request["time"], int) and request["time"] < request["ahead"] == time):
            raise VerificationError("", "does not go back from the time of its own entry")
        claim = _canonical({**stated, "id": name, "kind": "clock_correction"})
        signed = {self._signer(one, claim, time) for one in request["signatures"]}
        needed = {actor, *(self._issuers[self._domains[one]] for one in self._open.values())}
        if missing := sorted(needed - signed):
            raise VerificationError("", f"is not signed by {', '.join(missing)}")
        self._least = request["time"]
        self._keys.go_back(time, request["time"])

    def _signer(self, signature: str, claim: bytes, time: int) -> str:
        """The signer of a detached JWS. Raises: VerificationError, LookupError."""
        owner, key = self._keys.signer(_header(signature)["kid"], time)
        _check_jws(owner, key, signature, claim)
        return owner


def _header(signature: str) -> dict[str, Any]:
    """The protected header of a detached JWS. Raises: ValueError."""
    import json

    header: dict[str, Any] = json.loads(_from_base64url(signature.partition("..")[0]))
    return header


def _check_jws(owner: str, key: dict[str, str], signature: str, payload: bytes) -> dict[str, Any]:
    """Verify a detached JWS (RFC 7797); its header. Raises: VerificationError, LookupError, ValueError."""
    protected, _, value = signature.partition("..")
    header = _header(signature)
    message = protected.encode() + b"." + payload
    if header["b64"] is not False or not _verifies_jws(key, header["alg"], _from_base64url(value), message):
        raise VerificationError("", f"bears a signature that is not {owner}'s")
    return header


def _verifies_jws(key: dict[str, str], algorithm: str, signature: bytes, message: bytes) -> bool:
    """Whether a signature is a JWK's own: Ed25519, ES256 or RS256, as its type is (RFC 8037, RFC 7518)."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    def number(member: str) -> int:
        return int.from_bytes(_from_base64url(key[member]), "big")

    kind, sha256 = (key["kty"], algorithm), hashes.SHA256()
    try:
        if kind == ("OKP", "Ed25519"):
            ed25519.Ed25519PublicKey.from_public_bytes(_from_base64url(key["x"])).verify(signature, message)
        elif kind == ("EC", "ES256") and len(signature) == 2 * HASH_BYTES:
            pair = (int.from_bytes(part, "big") for part in (signature[:HASH_BYTES], signature[HASH_BYTES:]))
            point = ec.EllipticCurvePublicNumbers(number("x"), number("y"), ec.SECP256R1()).public_key()
            point.verify(encode_dss_signature(*pair), message, ec.ECDSA(sha256))
        elif kind == ("RSA", "RS256"):
            public = rsa.RSAPublicNumbers(number("e"), number("n")).public_key()
            public.verify(signature, message, padding.PKCS1v15(), sha256)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _canonical(value: object) -> bytes:
    """RFC 8785 bytes of objects whose names are ASCII and whose numbers are integers."""
    import json

    return _utf8(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False), "")


def _utf8(text: str, where: str) -> bytes:
    """The bytes of a text. Raises: VerificationError, for half of a character: JSON can name one."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise VerificationError(where, "holds a lone surrogate, which is no character") from None


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


# --- Account proofs


@dataclass(frozen=True, slots=True)
class Balance:
    """An account's loss by coordinate: units that are posted and pending, and runs of which the loss has no bound."""

    posted: tuple[int, ...]
    posted_unbounded: tuple[int, ...]
    pending: tuple[int, ...]
    pending_unbounded: tuple[int, ...]

    def plus(self, posted: _Sum, pending: _Sum, sign: int) -> Balance:
        """The balance with these losses posted, and these added to (1) or removed from (-1) pending."""
        width = len(posted[0])
        parts = (self.posted, self.posted_unbounded, self.pending, self.pending_unbounded)
        held = [part or (0,) * width for part in parts]
        added = (*posted, *(tuple(sign * one for one in part) for part in pending))
        return Balance(*(tuple(map(sum, zip(*pair, strict=True))) for pair in zip(held, added, strict=True)))


_Sum = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ProvenAccount:
    """The content of an account proof.

    Attributes:
        size: of the log that the statement describes.
        stated: the balance then; None if there was no record of the account.
        since: how many entries that change the account are shown after that.
        hidden: how many more there are that the proof's receiver may not see, or that may have changed it otherwise;
            one more where the lineage began after the statement, and the proof does not show that by a registration.
        merged: how many mergers since are shown, where one of them made the account. Then the balance begins with the
            sum of what those that merged had; a run that several of them knew is in it more than once, so that it is
            too much rather than too little.
        counted: how many of the entries since are lapses that post fewer steps than were charged, by their leases.
            The log's key signed these steps; the leases are no part of the proof, and replay checks them.
        assumed: how many of the entries since are of charges over ranges, of which no entries show that the partition
            is in one. The service says so; the statement after them holds them, and replay checks them.
        foreign: how many of the entries since settle runs of other lineages. That the account knew them no entry shows,
            so what was posted counts, and what was pending stays: too much rather than too little, until the next
            statement.
        balance: with the entries that are shown; None if there is no record. That shows no account without loss: a
            name that the ledger never gave has none either.
        newest: the newest checkpoint of the proof.
        note: the checkpoint that the statement is under, as it is signed.
    """

    partition: str
    holder: str
    size: int
    stated: Balance | None
    since: int
    hidden: int
    balance: Balance | None
    newest: Checkpoint
    note: str
    merged: int = 0
    counted: int = 0
    assumed: int = 0
    foreign: int = 0


def verify_account(text: str, trust: LogKey | Policy) -> ProvenAccount:
    """Check the proof of an account: its leaf under a root that an entry of the log states, and the entries since.

    Raises:
        VerificationError: naming the field that does not prove what it claims.
    """
    proof = _account_proof(text)
    _require_names(proof)
    position, newest, statement = _proven_entry(proof["statement"], "statement", trust)
    request = _fields(_request(statement, "statement", "statement"), "statement.request", {"root": str, "size": int})
    size, partition, holder = request["size"], proof["partition"], proof["holder"]
    if not 0 < size <= position:
        raise VerificationError("statement", "is of a size that lies after it")
    root = _StatedRoot(size, request["root"], partition)
    stated = root.balance(proof, "proof")
    newest, known = _merged_balances(proof, newest, root, trust)
    runs = _RunsSince(partition, _opened(proof, trust), _authors(holder, known))
    began = -1 if holder == "global" else int(holder.removeprefix("lineage:"))
    began_since = not proof["merged"] and began >= size
    if began_since and proof["charges"] and not proof["hidden"]:
        raise VerificationError("charges", f"are older than {holder}: the merger that made it is missing")
    unknown = int(began_since and not _is_registered(proof["origin"], began, trust))
    for place, one in enumerate(proof["charges"]):
        index, _, entry = _proven_entry(one, f"charges[{place}]", trust)
        if index >= size:
            raise VerificationError(f"charges[{place}]", "comes after the statement: it belongs to the entries since")
        runs.charges[entry.get("id")] = entry
    balance, last = known[holder] if proof["merged"] else stated, size - 1
    for place, one in enumerate(proof["since"]):
        index, checkpoint, entry = _proven_entry(one, f"since[{place}]", trust)
        if index <= last:
            raise VerificationError(f"since[{place}]", "does not come after the entry before it")
        last, newest = index, max(newest, checkpoint, key=lambda known: known.size)
        balance = runs.balance(balance, entry, f"since[{place}]")
    _require_one_checkpoint(proof)
    note = proof["statement"]["receipt"].partition("\n\n")[2]
    shown, merged = (len(proof["since"]), proof["hidden"] + unknown), len(proof["merged"])
    more = merged, runs.counted, runs.assumed, runs.foreign
    return ProvenAccount(partition, holder, size, stated, *shown, balance, newest, note, *more)


def _is_registered(origin: object, began: int, trust: LogKey | Policy) -> bool:
    """Whether a lineage is shown to begin with the registration of its organisation, and so with no run of before."""
    if origin is None:
        return False
    index, _, entry = _proven_entry(origin, "origin", trust)
    if index != began:
        raise VerificationError("origin", f"is entry {index}, and the lineage began with entry {began}")
    return bool(entry.get("kind") == "organisation")


def _require_one_checkpoint(proof: Mapping[str, Any]) -> None:
    """Check that all entries are of one log, as a service proves them: two heads of one size may be of two.

    Raises:
        VerificationError.
    """
    mergers = [one["merger"] for one in proof["merged"]]
    origin = [] if proof["origin"] is None else [proof["origin"]]
    shown = [proof["statement"], *proof["charges"], *proof["since"], *proof["opened"], *mergers, *origin]
    heads = {one["receipt"].partition("\n\n")[2].partition("\n\n")[0] for one in shown}
    if len(heads) > 1:
        raise VerificationError("since", "and the others are under several checkpoints, and must be under one")


_ACCOUNT_PROOF: Final = {
    "beside": list,
    "charges": list,
    "hidden": int,
    "holder": str,
    "merged": list,
    "opened": list,
    "origin": (dict, type(None)),
    "partition": str,
    "record": (str, type(None)),
    "salt": (str, type(None)),
    "siblings": list,
    "since": list,
    "statement": dict,
    "v": int,
}


_LEAF: Final = {name: _ACCOUNT_PROOF[name] for name in ("beside", "holder", "record", "salt", "siblings")}


def _account_proof(text: str) -> dict[str, Any]:
    """The fields of a proof; of mergers and openings there may be none, and no origin. Raises: VerificationError."""
    found = _parsed(text, "proof")
    whole = {"merged": [], "opened": [], "origin": None, **found} if isinstance(found, dict) else found
    proof = _fields(whole, "proof", _ACCOUNT_PROOF)
    if proof["v"] != 1:
        raise VerificationError("v", "must be 1")
    # A count below nothing would hide what this verifier counts itself; no log has so many entries as the limit.
    if not 0 <= proof["hidden"] < _ENTRIES_MAX:
        rule = "must not be negative" if proof["hidden"] < 0 else "is more than any log has entries"
        raise VerificationError("hidden", rule)
    return proof


def _require_names(proof: Mapping[str, Any]) -> None:
    """Check that an account has names that the ledger gives. Raises: VerificationError.

    The tree shows no record of any other name, and so of one that only looks like an account's to people.
    """
    if not _HOLDER.match(proof["holder"]):
        raise VerificationError("holder", "must be 'global', or 'lineage:' and the index of an entry")
    if not _PARTITION.match(proof["partition"]):
        raise VerificationError("partition", "must be 'provider/dataset/partition'")


@dataclass(frozen=True, slots=True)
class _StatedRoot:
    """The root that the log states for its first ``size`` entries, under which accounts of a partition are proven."""

    size: int
    root: str
    partition: str

    def balance(self, leaf: Mapping[str, Any], where: str) -> Balance | None:
        """The balance of an account; None if it had no charge. Raises: VerificationError."""
        name = _canonical(["accounts", [self.partition, leaf["holder"]]])
        found = state_root(state_key(name), _account_leaves(leaf, name), _siblings(leaf["siblings"])).hex()
        if found != self.root:
            raise VerificationError(where, f"does not lead to the root that the log states for {self.size} entries")
        return None if leaf["record"] is None else _balance(leaf["record"], self.partition, leaf["holder"])


def _merged_balances(
    proof: Mapping[str, Any], newest: Checkpoint, root: _StatedRoot, trust: LogKey | Policy
) -> tuple[Checkpoint, dict[str, Balance | None]]:
    """By lineage, what those had that became one after the statement, and the sums; the newest checkpoint of the proof.

    A lineage bears the index of its merger's entry, which names the lineages that merged. Each of these is stated, or
    is itself of a merger that comes before.
    """
    known: dict[str, Balance | None] = {}
    last = root.size - 1
    for place, one in enumerate(proof["merged"]):
        where = f"merged[{place}]"
        shown = _fields(one, where, {"accounts": list, "merger": dict})
        index, checkpoint, entry = _proven_entry(shown["merger"], f"{where}.merger", trust)
        body = _of_type(entry.get("body"), dict, where)
        if entry.get("kind") not in {"merger", "acquisition"} or body.get("outcome") != "permitted" or index <= last:
            raise VerificationError(where, "is not the entry of a merger that comes after the one before it")
        parents = [_of_type(parent, int, where) for parent in _of_type(body.get("parents"), list, where)]
        for leaf in shown["accounts"]:
            found = _fields(leaf, f"{where}.accounts", _LEAF)
            # A lineage that began after the statement may have no leaf.
            if found["holder"] not in {f"lineage:{parent}" for parent in parents if parent < root.size}:
                raise VerificationError(f"{where}.accounts", "holds an account that is none of the merged")
            known[found["holder"]] = root.balance(found, f"{where}.accounts")
        names = [f"lineage:{parent}" for parent in parents]
        if missing := [name for name in names if name not in known]:
            raise VerificationError(where, f"lacks what {missing[0]} had")
        sums = [held for name in names if (held := known[name]) is not None]
        known[f"lineage:{index}"] = _added(sums) if sums else None
        last, newest = index, max(newest, checkpoint, key=lambda seen: seen.size)
    if proof["merged"] and proof["holder"] != f"lineage:{last}":
        raise VerificationError("merged", f"does not end with the merger that made {proof['holder']}")
    return newest, known


def _authors(holder: str, merged: Mapping[str, object]) -> set[str] | None:
    """The lineages whose runs an account certainly has, as far as the proof shows its mergers; None: all."""
    return None if holder == "global" else {holder, *merged}


def _added(held: Sequence[Balance]) -> Balance:
    """The sum of balances."""
    total, *others = held
    for one in others:
        total = total.plus((one.posted, one.posted_unbounded), (one.pending, one.pending_unbounded), 1)
    return total


def _account_leaves(proof: Mapping[str, Any], name: bytes) -> list[tuple[bytes, bytes]]:
    """Every record at the account's place: its own, if it has one, and those beside it."""
    leaves = []
    for place, one in enumerate(proof["beside"]):
        other = _fields(one, f"beside[{place}]", {"hash": str, "key": str})
        leaves.append((_hash(other["key"], f"beside[{place}].key"), _hash(other["hash"], f"beside[{place}].hash")))
    own = state_key(name)
    if (proof["record"] is None) != (proof["salt"] is None) or own in dict(leaves):
        raise VerificationError("record", "and salt must both be there, or neither")
    if proof["record"] is not None:
        leaves.append((own, state_leaf_hash(_hash(proof["salt"], "salt"), _utf8(proof["record"], "record"))))
    return sorted(leaves)


def _siblings(found: Sequence[Any]) -> dict[int, bytes]:
    siblings: dict[int, bytes] = {}
    for place, one in enumerate(found):
        sibling = _fields(one, f"siblings[{place}]", {"depth": int, "hash": str})
        if not 0 <= sibling["depth"] < STATE_DEPTH or sibling["depth"] in siblings:
            raise VerificationError(f"siblings[{place}]", "is of no depth, or of one that was named before")
        siblings[sibling["depth"]] = _hash(sibling["hash"], f"siblings[{place}]")
    return siblings


def _balance(record: str, partition: str, holder: str) -> Balance:
    match _parsed(record, "record"):
        case [ref, name, [[*posted], [*counts]], [[*pending], [*waits]]] if (ref, name) == (partition, holder):
            parts = [[_of_type(one, int, "record") for one in part] for part in (posted, counts, pending, waits)]
            return Balance(*map(tuple, parts))
    raise VerificationError("record", f"is not that of {holder} on {partition}")


def _opened(proof: Mapping[str, Any], trust: LogKey | Policy) -> dict[str, int]:
    """By reference, the index of the entry that opened each partition that is shown. Raises: VerificationError."""
    found: dict[str, int] = {}
    for place, one in enumerate(proof["opened"]):
        where = f"opened[{place}]"
        index, _, entry = _proven_entry(one, where, trust)
        request = _request(entry, "partition", where)
        ref = "/".join(_of_type(request.get(name), str, where) for name in ("provider", "dataset", "partition"))
        if ref in found:
            raise VerificationError(where, "opens a partition that was shown before")
        found[ref] = index
    return found


@dataclass(slots=True)
class _RunsSince:
    """The entries of runs since a statement.

    Attributes:
        opened: by reference, the index of the entry that opened a partition, of those that are shown.
        authors: the lineages whose runs the account certainly has; None: all.
        charges: by id, those that are shown and not settled yet.
        counted, assumed, foreign: as in :class:`ProvenAccount`.
    """

    partition: str
    opened: Mapping[str, int]
    authors: set[str] | None = None
    charges: dict[Any, Mapping[str, Any]] = field(default_factory=dict)
    counted: int = 0
    assumed: int = 0
    foreign: int = 0

    def balance(self, before: Balance | None, entry: Mapping[str, Any], where: str) -> Balance:
        """A balance with the entry of a run."""
        kind, outcome = entry.get("kind"), _of_type(entry.get("body"), dict, where).get("outcome")
        if kind == "charge":
            self.charges[entry.get("id")] = entry
        elif kind not in {"post", "void", "lapse"}:
            raise VerificationError(where, "is not the entry of a run")
        request = _request(entry, kind, where)
        # What settles a charge takes it out: a second settlement would take its loss away twice.
        charge = entry if kind == "charge" else self.charges.pop(_of_type(request.get("charge"), str, where), None)
        if charge is None or charge.get("kind") != "charge":
            raise VerificationError(where, "settles a charge that is not shown, or was settled before")
        try:
            segments = self._price_of(charge["body"])
            whole = sum(one["steps"] for one in segments)
            # A lapse states how many steps were leased, if only they are posted.
            ran = request["steps"] if kind == "post" else entry["body"].get("steps", whole)
            posted = _loss_of(segments, ran if outcome == "posted" else 0)
            base = before or Balance((), (), (), ())
            foreign = self.authors is not None and f"lineage:{charge['body']['author']}" not in self.authors
            # A settlement takes from what was pending only where a run is certainly the account's.
            stays = foreign and kind != "charge"
            found = base.plus(posted, _loss_of(segments, 0 if stays else whole), 1 if kind == "charge" else -1)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise VerificationError(where, f"has no price on {self.partition}") from None
        self.counted += kind == "lapse" and "steps" in entry["body"]
        self.foreign += stays
        return found

    def _price_of(self, body: Mapping[str, Any]) -> Sequence[Any]:
        """The price of a charge on the partition. Raises: KeyError, TypeError, ValueError."""
        prices, request = body["prices"], body["request"]
        if "ranges" not in request:
            found: Sequence[Any] = prices[self.partition]
            return found
        within = [*request["partitions"], *(ref for one in request["ranges"] for ref in self._between(one))]
        if len(prices) > 1:
            return _grouped_price(prices, body["groups"], within, self.partition)
        if self.partition not in within:
            if not any(self._may_hold(one) for one in request["ranges"]):
                raise KeyError(self.partition)
            self.assumed += 1
        return next(iter(prices.values()))

    def _ends(self, one: Mapping[str, str]) -> tuple[int | None, int | None]:
        first, last = (self.opened.get(f"{one['dataset']}/{one[side]}") for side in ("first", "last"))
        return first, last

    def _between(self, one: Mapping[str, str]) -> list[str]:
        """The partitions in a range, in order, as far as the proof shows their openings; none without both ends."""
        first, last = self._ends(one)
        if first is None or last is None:
            return []
        held = (ref for ref, at in self.opened.items() if first <= at <= last and ref.startswith(f"{one['dataset']}/"))
        return sorted(held, key=self.opened.__getitem__)

    def _may_hold(self, one: Mapping[str, str]) -> bool:
        """Whether the partition may be in a range, for all that is shown."""
        return one["dataset"] == self.partition.rpartition("/")[0] and (
            self.partition not in self.opened or None in self._ends(one)
        )


def _grouped_price(
    prices: Mapping[str, Sequence[Any]], groups: Sequence[Sequence[int]], within: Sequence[str], partition: str
) -> Sequence[Any]:
    """The price of a partition's group, under the name of the group's first one. Raises: KeyError, ValueError.

    Args:
        groups: numbers of groups, each with how many of the charge's partitions in a row are of it.
        within: the partitions that are shown to be the charge's, in its order.
    """
    # A range has only the partitions between its ends: if there are as many as were charged, none is missing.
    # Asked first, so that there are no more numbers than partitions that are shown.
    if sum(count for _, count in groups) != len(within):
        raise KeyError(partition)
    numbers = [number for number, count in groups for _ in range(count)]
    first: dict[int, str] = {}
    for ref, number in zip(within, numbers, strict=True):
        first.setdefault(number, ref)
    return prices[first[numbers[within.index(partition)]]]


def _loss_of(segments: Sequence[Any], steps: int) -> _Sum:
    """The loss of the first steps of a run, as the book adds it up: finite units, and where it has no bound."""
    finite, unbounded = [0] * len(segments[0]["price"]), [0] * len(segments[0]["price"])
    for segment in segments:
        ran = min(steps, segment["steps"])
        steps -= ran
        for place, cost in enumerate(segment["price"] if ran else ()):
            unbounded[place] |= cost is None
            finite[place] += 0 if cost is None else -(-ran // segment["unit"]) * cost
    far = [one > LOSS_MAX for one in finite]
    return (
        tuple(0 if beyond else one for one, beyond in zip(finite, far, strict=True)),
        tuple(int(one or beyond) for one, beyond in zip(unbounded, far, strict=True)),
    )


def _proven_entry(one: object, where: str, trust: LogKey | Policy) -> tuple[int, Checkpoint, dict[str, Any]]:
    """An entry by its receipt: its index, the checkpoint that it is under, and its content."""
    found = _fields(one, where, {"entry": str, "receipt": str})
    data = from_base64(found["entry"], where)
    index, checkpoint = verify_receipt(found["receipt"], data, trust)
    entry: dict[str, Any] = _of_type(_parsed(to_text(data, where), where), dict, where)
    # Of another log an entry may be anything.
    for name in ("id", "kind"):
        _of_type(entry.get(name), str, f"{where}.{name}")
    return index, checkpoint, entry


def _request(entry: Mapping[str, Any], kind: object, where: str) -> dict[str, Any]:
    """The request of a permitted entry of a kind."""
    body = _of_type(entry.get("body"), dict, where)
    outcomes = {"charge": ("pending",), "post": ("posted",), "void": ("voided",)}
    outcomes |= dict.fromkeys(("partition", "statement", LOG_KEY_ROTATION), ("permitted",))
    if entry.get("kind") != kind or body.get("outcome") not in outcomes.get(str(kind), ("posted", "voided")):
        raise VerificationError(where, f"is not the entry of a {kind}")
    request: dict[str, Any] = _of_type(body.get("request"), dict, where)
    return request


def _fields(value: object, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """An object of exactly these fields. Raises: VerificationError."""
    found: dict[str, Any] = _of_type(value, dict, where)
    if found.keys() != kinds.keys():
        raise VerificationError(where, f"must have the fields {', '.join(kinds)}")
    for name, kind in kinds.items():
        _of_type(found[name], kind, f"{where}.{name}")
    return found


def _of_type(value: object, kind: Any, where: str) -> Any:  # noqa: ANN401 - a type or some, and JSON of it
    if not isinstance(value, kind) or isinstance(value, bool):
        raise VerificationError(where, "is of another type of JSON")
    return value


def _parsed(text: str, where: str) -> object:
    import json

    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise VerificationError(where, "is not JSON") from None
    return value


def _hash(text: str, where: str) -> bytes:
    found = from_base64(_of_type(text, str, where), where)
    if len(found) != HASH_BYTES:
        raise VerificationError(where, "is not a hash of 32 bytes")
    return found


# --- Strict spellings


def to_base64(raw: bytes) -> str:
    """RFC 4648, section 4."""
    return base64.b64encode(raw).decode("ascii")


def from_base64(text: str, where: str) -> bytes:
    """The exact inverse of :func:`to_base64`. Raises: VerificationError."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise VerificationError(where, "holds something that is not base64") from None
    if to_base64(raw) != text:
        raise VerificationError(where, "holds base64 that is not in its one spelling")
    return raw


def to_text(data: bytes, where: str) -> str:
    """Strict UTF-8. Raises: VerificationError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise VerificationError(where, "is not UTF-8") from None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- The command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check that the arguments name and print its result; 0 if it holds, :data:`FAILED` if not."""
    import json
    import sys

    options = _parser().parse_args(arguments)
    result: dict[str, object]
    try:
        result = options.check(options)
    except (VerificationError, OSError) as error:
        text = str(error) if isinstance(error, VerificationError) else f"{error.filename}: {error.strerror}"
        result = {"fault": text, "ok": False}
        _say(sys.stdout if options.json else sys.stderr, json.dumps(result) if options.json else text)
        return FAILED
    _say(sys.stdout, json.dumps(result, sort_keys=True) if options.json else _in_words(result))
    return 0


def _say(stream: TextIO, line: str) -> None:
    """A line; what is not printed is escaped, as are letters that the terminal has not.

    An error quotes what was checked, which could erase the error on a terminal and write another result.
    """
    encoding = stream.encoding or "ascii"
    shown = "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
    stream.write(shown.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(prog="verifier", description="Check a log without trusting its server.")
    commands = parser.add_subparsers(required=True, metavar="WHAT")
    for name, check, files, what in (
        ("receipt", _check_receipt, ("receipt", "entry"), "an entry is in the log (tlog-proof)"),
        ("checkpoint", _check_checkpoint, ("checkpoint",), "a checkpoint is signed, and cosigned by a quorum"),
        ("consistency", _check_consistency, ("kept", "checkpoint", "proof"), "a log grew out of the one kept"),
        ("tiles", _check_tiles, ("folder",), "a published log is whole: every entry, every hash, the root"),
        ("account", _check_account, ("proof",), "an account's balance is what the log's key signed"),
    ):
        command = commands.add_parser(name, help=what, description=f"Check that {what}.")
        for file in files:
            command.add_argument(file, metavar=file.upper())
        trust = command.add_mutually_exclusive_group(required=True)
        trust.add_argument("--log", metavar="FILE", help="the log's verifier key, as you kept it")
        trust.add_argument("--policy", metavar="FILE", help="logs, witnesses and quorum (tlog-policy)")
        command.add_argument("--rotations", metavar="FILE", help="how the log replaced its key, if it did")
        if name == "tiles":
            command.add_argument("--kept", metavar="FILE", help="an older checkpoint that you kept")
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(check=check)
    return parser


def _check_receipt(options: argparse.Namespace) -> dict[str, object]:
    text = to_text(_read(options.receipt, RECEIPT_BYTES_MAX), "receipt")
    index, checkpoint = verify_receipt(text, _read(options.entry, ENTRY_BYTES_MAX), _trust(options))
    return {**_of(checkpoint), "index": index}


def _check_checkpoint(options: argparse.Namespace) -> dict[str, object]:
    text, trust = to_text(_read(options.checkpoint, NOTE_BYTES_MAX), "checkpoint"), _trust(options)
    return {**_of(Checkpoint.open(text, trust)), "witnesses": [*trust.cosigners(Note.parse(text))]}


def _check_consistency(options: argparse.Namespace) -> dict[str, object]:
    trust = _trust(options)
    now = Checkpoint.open(to_text(_read(options.checkpoint, NOTE_BYTES_MAX), "checkpoint"), trust)
    kept = _kept(options.kept, trust)
    lines = to_text(_read(options.proof, PROOF_HASHES_MAX * 64), "proof").split()
    check_extends(kept, now, read_proof(lines, "proof"))
    return {**_of(now), "kept": kept.size}


def _check_tiles(options: argparse.Namespace) -> dict[str, object]:
    def fetch(path: str, limit: int) -> bytes | None:
        try:
            return _read(f"{options.folder}/{path}", limit)
        except (FileNotFoundError, NotADirectoryError):
            return None

    trust, rotations = _trust(options), fetch(ROTATIONS, ROTATIONS_BYTES_MAX)
    if rotations is not None:
        trust = with_rotations(trust, to_text(rotations, "rotations"))
    kept = _kept(options.kept, trust) if options.kept else None
    found = verify_tiles(fetch, trust, kept)
    more = {"kept": kept.size if kept else None, "suspended": _suspension(fetch, found.size)}
    return {**_of(found), "entries": found.size, **{name: one for name, one in more.items() if one is not None}}


def _suspension(fetch: Fetch, size: int) -> int | None:
    """The newest entry of a published log that was verified, if it has suspended the log's key."""
    import json

    first = (size - 1) // TILE_WIDTH
    newest = _bundle(fetch, first, size - first * TILE_WIDTH)[-1] if size else b""
    try:
        entry = json.loads(newest)
        suspended = entry["kind"] == LOG_KEY_SUSPENSION and entry["body"]["request"]["suspended"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return size - 1 if suspended else None


def _check_account(options: argparse.Namespace) -> dict[str, object]:
    text = to_text(_read(options.proof, ACCOUNT_BYTES_MAX), "proof")
    found = verify_account(text, _trust(options))
    balance = found.balance or Balance((), (), (), ())
    return {
        **_of(found.newest),
        "account": found.holder,
        "assumed": found.assumed,
        "counted": found.counted,
        "foreign": found.foreign,
        "hidden": found.hidden,
        "merged": found.merged,
        "partition": found.partition,
        "pending": [list(balance.pending), list(balance.pending_unbounded)],
        "posted": [list(balance.posted), list(balance.posted_unbounded)],
        "recorded": found.balance is not None,
        "since": found.since,
        "stated": found.size,
    }


def _of(checkpoint: Checkpoint) -> dict[str, object]:
    return {"log": checkpoint.origin, "ok": True, "root": checkpoint.root.hex(), "size": checkpoint.size}


def _in_words(result: Mapping[str, object]) -> str:
    if "account" in result:
        return _account_in_words(result)
    text = f"holds: {result['log']} signed the root {result['root']} of {result['size']} entries"
    more = {
        "index": "; the entry is at index {}",
        "kept": "; they begin with the {} kept",
        "entries": "; all {} are published",
        "witnesses": "; cosigned by {}",
        "suspended": "; entry {} has suspended the log's key",
    }
    for name, words in more.items():
        value = result.get(name)
        if value not in (None, []):
            text += words.format(", ".join(map(str, value)) if isinstance(value, list) else value)
    return text


def _account_in_words(result: Mapping[str, Any]) -> str:
    posted, pending = (_loss_in_words(result[name]) for name in ("posted", "pending"))
    merged = f", over {result['merged']} mergers since" if result["merged"] else ""
    counted = f", {result['counted']} of them lapses whose steps the log alone says" if result["counted"] else ""
    assumed = f", {result['assumed']} of charges over ranges, of which no entry shows that it is in one"
    ranged = assumed if result["assumed"] else ""
    foreign = f", {result['foreign']} of them of other lineages, whose pending loss stays" if result["foreign"] else ""
    hidden = f" ({result['hidden']} more that may have changed it are not shown)" if result["hidden"] else ""
    has = f"has posted {posted}, and {pending} pending" if result["recorded"] else "has no record"
    return (
        f"holds: {result['log']} signed that {result['account']} on {result['partition']} {has}: "
        f"stated for the first {result['stated']} entries, with {result['since']} entries since"
        f"{counted}{ranged}{foreign}{merged}{hidden}. That the stated root is right, and that no entry since is left "
        "out, 'epsilon verify' shows"
    )


def _loss_in_words(loss: Sequence[Sequence[int]]) -> str:
    finite, unbounded = loss
    units = [
        f"{one} and {runs} without bound" if runs else str(one) for one, runs in zip(finite, unbounded, strict=True)
    ]
    return f"[{', '.join(units)}] units" if any(finite) or any(unbounded) else "nothing"


def _trust(options: argparse.Namespace) -> Policy:
    if options.policy:
        trust = Policy.parse(_read(options.policy, POLICY_BYTES_MAX).decode(errors="surrogateescape"))
    else:
        trust = Policy((LogKey.parse(to_text(_read(options.log, 1_024), "vkey").strip()),))
    if not options.rotations:
        return trust
    return with_rotations(trust, to_text(_read(options.rotations, ROTATIONS_BYTES_MAX), "rotations"))


def _kept(path: str, trust: Policy) -> Checkpoint:
    """Open a kept checkpoint, which may be older than the witnesses."""
    return Checkpoint.open(to_text(_read(path, NOTE_BYTES_MAX), "checkpoint"), replace(trust, quorum=None))


def _read(path: str, limit: int) -> bytes:
    # The checks above know no file; this command, in the same file so that it can be copied alone, does.
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not for the project's pure core
        data = file.read(limit + 1)
    if len(data) > limit:
        raise VerificationError(path, f"has more than the {limit} bytes allowed")
    return data


if __name__ == "__main__":
    raise SystemExit(main())
