"""Provider grants: data keys that providers send themselves, as envelopes in a folder that the clean room polls.

A service that only authorises gives no data key. Each provider checks the receipt of the key release and seals its
keys to the clean room (``epsilon key grant``); its output is put into the folder that the assignment names, as
``<key release>.json`` or ``<key release>.<anything>.json``. An envelope counts only if it says what the service's own
would say, opens with this clean room's key, and holds the keys that the data open with. Any other file there is
reported once and left alone: the right one may still come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.dataset_files.stored_partition import PartitionData, StoredPartition
from client.http.problems import Unreachable
from client.keys.hpke_envelope import unseal
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

POLL_S: Final = 0.5
GRANT_BYTES_MAX: Final = 1 << 20
FILES_MAX: Final = 2_048
"""Files of one key release that are looked at: a partition's key comes in one, and a charge has 1,024 partitions."""


class NotGranted(Unreachable):
    """No provider's envelope came before the wait ended.

    Attributes:
        posted: whether the charge was posted for no steps, so that the run is over for good.
    """

    posted = False


@dataclass(slots=True)
class ProviderGrants:
    """The envelopes of one key release.

    Attributes:
        folder: where they are put.
        release: the id of the key release.
        sealing: the clean room's key that they are sealed to.
        expected: what each says of its release.
        stored: the data at rest that are still closed, by partition.
        say: receives one line for each file: taken, or not taken and why.
    """

    folder: Path
    release: str
    sealing: X25519PrivateKey
    expected: c.Object
    stored: dict[str, StoredPartition]
    say: Callable[[str], None]
    _seen: set[tuple[str, int, int]] = field(default_factory=set)

    def commands(self) -> list[str]:
        """What each provider runs, with its own profile and the files of its data keys."""
        by_provider: dict[str, list[str]] = {}
        for ref in self.stored:
            by_provider.setdefault(ref.partition("/")[0], []).append(ref)
        numbers = [""] if len(by_provider) == 1 else [f".{number}" for number in range(1, len(by_provider) + 1)]
        return [
            f"epsilon key grant PROFILE {self.release} {' '.join(f'--data-key {ref}=FILE' for ref in refs)}"
            f" > {quote(str(self.folder.resolve() / f'{self.release}{number}.json'))}"
            for number, refs in zip(numbers, by_provider.values(), strict=True)
        ]

    def wait(self, ended: Callable[[], str]) -> dict[str, PartitionData]:
        """The records of each partition, decrypted, once every key has come.

        Args:
            ended: polled: why the wait ends, or nothing.

        Raises:
            NotGranted: saying which partitions have no key, and why it ended.
        """
        opened: dict[str, PartitionData] = {}
        while True:
            opened |= self.look()
            if not self.stored:
                return opened
            why = ended()
            if why:
                raise NotGranted(f"no data key was granted for {', '.join(self.stored)}: {why}")
            time.sleep(POLL_S)

    def look(self) -> dict[str, PartitionData]:
        """The records that the files open which are there now."""
        opened: dict[str, PartitionData] = {}
        try:
            files = [*self._files()]
        except OSError as error:
            # A folder on another machine may come back.
            if self._seen != {(str(error), 0, 0)}:
                self.say(f"{self.folder} cannot be read, and the clean room waits on: {error}")
            self._seen = {(str(error), 0, 0)}
            return opened
        for path in files:
            try:
                records = self._open(path)
            except (Malformed, OSError) as error:
                self.say(f"{path} is not taken, and the clean room waits on: {error}")
                continue
            if records:
                self.say(f"{path} is taken: granted by the provider, sealed with HPKE to this clean room alone")
            opened |= records
        return opened

    def _files(self) -> Iterable[Path]:
        """Those of this release that are there and were not looked at as they are now."""
        named = (path for path in self.folder.iterdir() if path.name.startswith(f"{self.release}."))
        for path in sorted(file for file in named if file.suffix == ".json")[:FILES_MAX]:
            try:
                stat = path.stat()
            except OSError:
                continue
            # Of the inode, so that a file whose mode was corrected is looked at again.
            seen = (path.name, stat.st_ctime_ns, stat.st_size)
            # Empty is what a shell makes before the command has written.
            if stat.st_size and seen not in self._seen:
                self._seen.add(seen)
                yield path

    def _open(self, path: Path) -> Mapping[str, PartitionData]:
        with path.open("rb") as file:
            data = file.read(GRANT_BYTES_MAX + 1)
        keys = unseal(c.parse(data, GRANT_BYTES_MAX, "envelope"), self.sealing, self.expected)
        # Sealing needs no secret, so anyone may have sealed these: they count if the data open with them.
        opened = {ref: self.stored[ref].open(key, ref) for ref, key in keys.items() if ref in self.stored}
        for ref in opened:
            del self.stored[ref]
        return opened
