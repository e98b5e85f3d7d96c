r"""A backup: one ZIP file with the book's bytes, the same for both engines.

    entries        every entry in order      4 bytes of length, big-endian, then the bytes; and again
    documents      every document by digest  the same
    checkpoints    every signed note         the same
    cosignatures   every witness's line      the same, each as JSON with its vkey and tree_size
    manifest.json  {"kind":"epsilon-ledger backup","log":"epsilon.example/ledger",
                    "members":{"checkpoints":{"count":4,"sha256":"..."},...},"root":"...","tree_size":18,"v":1}

``root`` is the tree's, in hex. Nothing in the file is secret, and nothing in it is trusted: a restored book is replayed
from its first entry, under a log key and, if one was kept, a checkpoint from outside.
"""

from __future__ import annotations

import hashlib
import lzma
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Final, Literal, Self

from ledger.audit.replay import VerificationFailed
from ledger.commands.entry import ENTRY_BYTES_MAX
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.log.merkle import CompactRange
from ledger.store.log_key.rotation_proofs import Trust
from ledger.verifier import NOTE_BYTES_MAX
from ledger.wire.field_types import Sha256, between, constant
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read, write
from migrations.transfer.book_contents import Contents, Kind
from migrations.transfer.log_check import Head, Step, check_note

MANIFEST_BYTES_MAX: Final = 16_384
COUNT_MAX: Final = 1 << 48
_SIZES_MAX: Final[dict[Kind, int]] = {
    "documents": POLICY_DOCUMENT_BYTES_MAX,
    "entries": ENTRY_BYTES_MAX,
    "checkpoints": NOTE_BYTES_MAX,
    "cosignatures": NOTE_BYTES_MAX,
}
"""The size limit of an item by kind, in the order in which they are written."""
_MANIFEST: Final = "manifest.json"
_LENGTH: Final = 4
_ENCRYPTED: Final = 1


class Counted(Record, frozen=True):
    """How many items a member has, and the digest of its bytes."""

    count: Annotated[int, between(0, COUNT_MAX)]
    sha256: str


class Members(Record, frozen=True):
    """Each kind of bytes in the archive."""

    checkpoints: Counted
    cosignatures: Counted
    documents: Counted
    entries: Counted


class Manifest(Record, frozen=True):
    """The manifest of a backup; a book without a checkpoint names no log."""

    members: Members
    root: Sha256
    tree_size: Annotated[int, between(0, COUNT_MAX)]
    log: str | None = None
    kind: Literal["epsilon-ledger backup"] = constant("epsilon-ledger backup")
    v: Literal[1] = constant(1)


def write_archive(path: Path, contents: Contents, note: str | None, trust: Trust | None, step: Step) -> Head:
    """Write a book's contents to a file, building its tree on the way, and compare it with the newest checkpoint.

    Raises:
        VerificationFailed: if the entries are not those of the newest checkpoint: such a file could not be restored.
    """
    tree, total = CompactRange(), contents.tree_size

    def grow(data: bytes) -> None:
        tree.append(data)
        step(tree.size, total)

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        members = {kind: _write(file, kind, contents, grow if kind == "entries" else None) for kind in _SIZES_MAX}
        head = Head(tree.size, tree.root(), note)
        check_note(head, trust)
        manifest = Manifest(Members(**members), head.root.hex(), head.size, head.origin)
        # Without a date, so that the same book gives the same bytes.
        file.writestr(zipfile.ZipInfo(_MANIFEST), write(manifest))
    return head


def _write(file: zipfile.ZipFile, kind: Kind, contents: Contents, each: Callable[[bytes], None] | None) -> Counted:
    hashed, count = hashlib.sha256(), 0
    with closing(contents.items(kind)) as items, file.open(kind, "w", force_zip64=True) as member:
        for item in items:
            framed = len(item).to_bytes(_LENGTH, "big") + item
            hashed.update(framed)
            member.write(framed)
            count += 1
            if each is not None:
                each(item)
    return Counted(count, hashed.hexdigest())


@dataclass(frozen=True, slots=True)
class Archive:
    """A backup opened for reading; its manifest is read, the rest as it is requested."""

    file: zipfile.ZipFile
    manifest: Manifest

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a backup. Raises: Malformed, if it is not a backup or of a newer form; OSError."""
        if path.exists() and not path.is_file():
            raise Malformed("file", f"{path} is not a backup: it is no file that can be kept")
        try:
            with zipfile.ZipFile(path) as file:
                yield cls(file, _read_manifest(file))
        except (
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            NotImplementedError,
            EOFError,
            zlib.error,
            lzma.LZMAError,
        ) as error:
            raise Malformed("file", f"{path} is not a whole backup: {error}") from None

    @property
    def tree_size(self) -> int:
        """How many entries there are."""
        return self.manifest.tree_size

    def items(self, kind: Kind) -> Generator[bytes]:
        """See :class:`migrations.transfer.book_contents.Contents`.

        Raises:
            VerificationFailed: if they are not the manifest's.
        """
        hashed, count = hashlib.sha256(), 0
        with self.file.open(kind) as member:
            while framed := _one(member, kind):
                hashed.update(framed)
                count += 1
                yield framed[_LENGTH:]
        if getattr(self.manifest.members, kind) != Counted(count, hashed.hexdigest()):
            raise VerificationFailed(None, f"the backup's {kind} are not those of its manifest")


def _read_manifest(file: zipfile.ZipFile) -> Manifest:
    if sorted(file.namelist()) != sorted((*_SIZES_MAX, _MANIFEST)):
        raise Malformed("file", "is not a backup: its members are not those of one")
    if any(item.flag_bits & _ENCRYPTED for item in file.infolist()):
        raise Malformed("file", "is encrypted: decrypt it first")
    with file.open(_MANIFEST) as member:
        return read(Manifest, member.read(MANIFEST_BYTES_MAX + 1), MANIFEST_BYTES_MAX)


def _one(member: IO[bytes], kind: Kind) -> bytes:
    """The next item, read by the length before it; None at the end."""
    head = member.read(_LENGTH)
    size = int.from_bytes(head, "big")
    if head and (len(head) < _LENGTH or size > _SIZES_MAX[kind]):
        raise VerificationFailed(None, f"the backup's {kind} are cut off, or longer than any can be")
    data = member.read(size)
    if len(data) != size:
        raise VerificationFailed(None, f"the backup's {kind} are cut off")
    return head + data
