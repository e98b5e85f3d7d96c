r"""A backup: one ZIP file with the book's bytes, the same for both engines.

    entries        every entry in order      4 bytes of length, big-endian, then the bytes; and again
    documents      every document by digest  the same
    checkpoints    every signed note         the same
    cosignatures   every witness's line      the same, each as JSON with its vkey and tree_size
    manifest.json  {"kind":"epsilon-ledger backup","log":"epsilon.example/ledger",
                    "members":{"checkpoints":{"count":4,"sha256":"..."},...},"root":"...","tree_size":18,"v":1}

``root`` is the tree's, in hex. Nothing in the file is secret, and nothing in it is believed: what is made of it is
replayed from the first entry, under a log key and, where one was kept, a checkpoint from outside.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from ledger.audit.replay import Broken
from ledger.domain.entries import ENTRY_BYTES_MAX
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.log.merkle import CompactRange
from ledger.verifier import NOTE_BYTES_MAX, LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from migrations.transfer.book_contents import Contents
from migrations.transfer.log_check import Head, Step, check_note

KIND: Final = "epsilon-ledger backup"
MANIFEST_BYTES_MAX: Final = 16_384
COUNT_MAX: Final = 1 << 48
_SIZES_MAX: Final = {
    "checkpoints": NOTE_BYTES_MAX,
    "cosignatures": NOTE_BYTES_MAX,
    "documents": DOCUMENT_BYTES_MAX,
    "entries": ENTRY_BYTES_MAX,
}
_MANIFEST: Final = "manifest.json"
_LENGTH: Final = 4
_ENCRYPTED: Final = 1


def write_archive(path: Path, contents: Contents, note: str | None, key: LogKey | None, step: Step) -> Head:
    """Write a book's contents to a file, growing its tree on the way, and hold it against the newest checkpoint.

    Raises:
        Broken: if the entries are not those of the newest checkpoint, so that the file would restore nothing.
    """
    tree, total = CompactRange(), contents.tree_size

    def entries() -> Generator[bytes]:
        for data in contents.entries():
            tree.append(data)
            step(tree.size, total)
            yield data

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        members: c.Object = {
            "documents": _write(file, "documents", contents.documents()),
            "entries": _write(file, "entries", entries()),
            "checkpoints": _write(file, "checkpoints", contents.checkpoints()),
            "cosignatures": _write(file, "cosignatures", contents.cosignatures()),
        }
        head = Head(tree.size, tree.root(), note)
        check_note(head, key)
        manifest: c.Object = {
            "kind": KIND,
            **({} if head.origin is None else {"log": head.origin}),
            "members": members,
            "root": head.root.hex(),
            "tree_size": head.size,
            "v": 1,
        }
        # Without a date, so that the same book gives the same bytes.
        file.writestr(zipfile.ZipInfo(_MANIFEST), c.dump(manifest))
    return head


def _write(file: zipfile.ZipFile, name: str, items: Generator[bytes]) -> c.Json:
    hashed, count = hashlib.sha256(), 0
    with closing(items) as rest, file.open(name, "w", force_zip64=True) as member:
        for one in rest:
            framed = len(one).to_bytes(_LENGTH, "big") + one
            hashed.update(framed)
            member.write(framed)
            count += 1
    return {"count": count, "sha256": hashed.hexdigest()}


@dataclass(frozen=True, slots=True)
class Archive:
    """A backup opened for reading; its manifest is read, the rest as it is asked for.

    Every iterator raises Broken where the file is not what its manifest says; once through, its member is whole.
    """

    file: zipfile.ZipFile
    tree_size: int
    root: bytes
    members: c.Object

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a backup. Raises: Malformed, if it is none or of a newer form; OSError."""
        try:
            with zipfile.ZipFile(path) as file:
                yield cls._read_manifest(file)
        except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, zlib.error) as error:
            raise Malformed("file", f"{path} is not a whole backup: {error}") from None

    @classmethod
    def _read_manifest(cls, file: zipfile.ZipFile) -> Self:
        if sorted(file.namelist()) != sorted((*_SIZES_MAX, _MANIFEST)):
            raise Malformed("file", "is not a backup: its members are not those of one")
        if any(one.flag_bits & _ENCRYPTED for one in file.infolist()):
            raise Malformed("file", "is encrypted: decrypt it first")
        with file.open(_MANIFEST) as member:
            data = member.read(MANIFEST_BYTES_MAX + 1)
        required = ("kind", "members", "root", "tree_size", "v")
        known = c.fields(c.parse_canonical(data, MANIFEST_BYTES_MAX), "", required, ("log",))
        c.one_of(known["kind"], "kind", (KIND,))
        c.integer(known["v"], "v", 1, 1)
        members = c.fields(known["members"], "members", tuple(_SIZES_MAX))
        for name, stated in members.items():
            counted = c.fields(stated, f"members.{name}", ("count", "sha256"))
            c.integer(counted["count"], f"members.{name}.count", 0, COUNT_MAX)
        size = c.integer(known["tree_size"], "tree_size", 0, COUNT_MAX)
        root = bytes.fromhex(c.sha256(known["root"], "root"))
        return cls(file, size, root, members)

    def entries(self) -> Generator[bytes]:
        """See :class:`migrations.transfer.book_contents.Contents`."""
        return self._items("entries")

    def documents(self) -> Generator[bytes]:
        """See :class:`migrations.transfer.book_contents.Contents`."""
        return self._items("documents")

    def checkpoints(self) -> Generator[bytes]:
        """See :class:`migrations.transfer.book_contents.Contents`."""
        return self._items("checkpoints")

    def cosignatures(self) -> Generator[bytes]:
        """See :class:`migrations.transfer.book_contents.Contents`."""
        return self._items("cosignatures")

    def _items(self, name: str) -> Generator[bytes]:
        stated = self.members[name]
        hashed, count = hashlib.sha256(), 0
        with self.file.open(name) as member:
            while framed := _one(member, name):
                hashed.update(framed)
                count += 1
                yield framed[_LENGTH:]
        if stated != {"count": count, "sha256": hashed.hexdigest()}:
            raise Broken(None, f"the backup's {name} are not those of its manifest")


def _one(member: IO[bytes], name: str) -> bytes:
    """The next item with its length before it; nothing at the end."""
    head = member.read(_LENGTH)
    size = int.from_bytes(head, "big")
    if head and (len(head) < _LENGTH or size > _SIZES_MAX[name]):
        raise Broken(None, f"the backup's {name} are cut off, or longer than any can be")
    data = member.read(size)
    if len(data) != size:
        raise Broken(None, f"the backup's {name} are cut off")
    return head + data
