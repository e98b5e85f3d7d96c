"""The records of one slice of a stream: those of earlier slices are found, and its persons are committed to.

    FOLDER/PERIOD/share/persons-1.bin       commitments to its persons; for the service
    FOLDER/PERIOD/secret/slice.json         from which file it was sealed, and what was left out; for the provider

The key of commitments is FOLDER/commitments.key, the same for all slices of the stream. A record is found again by its
commitment, and a person by the number of earlier slices that commit to it; both are looked for in the folders of the
earlier slices.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from client.dataset_files.record_commitments import MAGIC, PERSONS_MAGIC, RecordCommitments, read_values
from client.dataset_files.record_encoding import Batch
from client.dataset_files.seal_report import SealReport
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

SLICE_FILE: Final = Path("secret", "slice.json")
NAMED_MAX: Final = 1_000
"""Records that were left out, whose numbers are written down."""
_CHUNK: Final = 1 << 20


class EarlierSlices:
    """What earlier slices commit to: each record, and in how many of them each person is."""

    def __init__(self, folders: dict[str, Path]) -> None:
        """Read the commitments in the folders of slices, by period. Raises: Malformed, OSError."""
        self.records: dict[bytes, str] = {}
        self.persons: Counter[bytes] = Counter()
        self.newest: dict[bytes, str] = {}
        for period, folder in folders.items():
            persons: set[bytes] = set()
            for path in sorted((folder / "share").glob("*.bin")):
                document = path.read_bytes()
                if document.startswith(MAGIC):
                    self.records.update(dict.fromkeys(read_values(document), period))
                else:
                    persons.update(read_values(document))
            self.persons.update(persons)
            self.newest.update(dict.fromkeys(persons, period))


class SliceRecords:
    """Sees the records of one slice while they are sealed; see :class:`client.dataset_files.seal.Beside`."""

    def __init__(  # noqa: PLR0913 - the terms of a slice
        self,
        earlier: EarlierSlices,
        source: str,
        body: c.Object,
        *,
        appearances_max: int,
        records_min: int,
        leaves_out: bool,
    ) -> None:
        """Of no record yet.

        Args:
            earlier: the other slices of the stream.
            source: the digest of the file that is sealed.
            body: of the command that opens the slice, as it is now known.
            appearances_max: in so many slices a person may be.
            records_min: so many records the slice needs.
            leaves_out: records that may not be in it are left out; else the first one is refused.
        """
        self._earlier, self._source, self._body = earlier, source, body
        self._most, self._least, self._leaves_out = appearances_max, records_min, leaves_out
        self._persons: RecordCommitments | None = None
        self._seen, self.left_out, self._named = 0, 0, list[c.Json]()

    def pass_on(self, batch: Batch, key: bytes) -> Batch:
        """The records that may be in this slice. Raises: Malformed, for the first one that may not."""
        self._persons = self._persons or RecordCommitments(key, PERSONS_MAGIC)
        known = [*zip(batch.identities, batch.persons, strict=True)]
        reasons = [self._reason({*pair}, key) for pair in zip(known, batch.spelled or known, strict=True)]
        first, self._seen = self._seen + 1, self._seen + len(reasons)
        for place, why in enumerate(reasons):
            if not why:
                continue
            if not self._leaves_out:
                rule = f"record {first + place} {why}: leave it out, or let --leave-out do so"
                raise Malformed("FILE", rule)
            self.left_out += 1
            if len(self._named) < NAMED_MAX:
                self._named.append({"record": first + place, "why": why})
        kept = [place for place, why in enumerate(reasons) if not why]
        passed = batch.kept(kept)
        self._persons.add(passed.persons)
        return passed

    def _reason(self, known: set[tuple[bytes, bytes]], key: bytes) -> str:
        """Why a record may not be in this slice, by any form of its identity and its person; empty if it may."""
        for identity, _ in known:
            period = self._earlier.records.get(hmac.digest(key, identity, "sha256"))
            if period is not None:
                return f"is in the slice {period} already"
        names = {hmac.digest(key, person, "sha256") for _, person in known}
        # A slice that holds both forms of a name counts twice: too often, and never too seldom.
        if sum(self._earlier.persons[name] for name in names) < self._most:
            return ""
        newest, most = max(self._earlier.newest[name] for name in names if name in self._earlier.newest), self._most
        return f"is of a person who is in {most} slice{'s' * (most > 1)} already, of which the newest is {newest}"

    def files(self, seen: SealReport) -> dict[Path, bytes]:
        """The commitments to persons, and what the slice was made of. Raises: Malformed, for too few records."""
        if seen.records < self._least:
            left = f", of which {self.left_out} were left out" if self.left_out else ""
            records = f"{self._seen} record{'s' * (self._seen != 1)}{left}"
            raise Malformed("FILE", f"has {records}: a slice of this stream needs at least {self._least}")
        documents = [] if self._persons is None else [*self._persons.documents()]
        stated: c.Object = {
            "body": self._body,
            "left_out": self.left_out,
            "named": self._named,
            "source": self._source,
        }
        persons = {
            Path("share", f"persons-{number}.bin"): document for number, document in enumerate(documents, start=1)
        }
        return {**persons, SLICE_FILE: c.dump(stated) + b"\n"}


def read_slice(folder: Path) -> dict[str, Any]:
    """What a sealed slice was made of; empty where there is none. Raises: Malformed, OSError."""
    path = folder / SLICE_FILE
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        raise Malformed(str(path), "is no JSON, as `epsilon dataset advance` writes it") from None
    if not isinstance(document, dict):
        raise Malformed(str(path), "must be an object")
    return document


def source_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes; of a folder's, of its files' names and digests in order. Raises: OSError."""
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.is_file())
        return c.digest(c.dump([[name, source_digest(path / name)] for name in names]))
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            whole.update(piece)
    return whole.hexdigest()
