"""Files of the issuers' keys (JWK Sets), read again when they change: keys are rotated without a restart.

The operator replaces a file; the service fetches no address by itself. A file that cannot be read, or holds no keys,
changes nothing: the keys that were read last stay, and the log says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from api.auth.access_tokens import JWKS_BYTES_MAX, Issuer
from api.auth.issuer_bounds import UNBOUND, IssuerBounds
from ledger.wire.malformed import Malformed

RECHECK_S: Final = 30.0
"""Seconds between two checks of the files."""
_LOG: Final = logging.getLogger("api.issuer_files")


class IssuerFiles:
    """The issuers whose tokens are accepted, by files."""

    def __init__(
        self,
        files: Iterable[tuple[str, Path]],
        clock: Callable[[], float] = time.monotonic,
        bounds: Mapping[str, IssuerBounds] | None = None,
    ) -> None:
        """Read all, by issuers' names, as ``bounds`` are; ``clock`` gives seconds. Raises: Malformed, OSError."""
        self._files = tuple(files)
        self._bounds = bounds or {}
        self._clock = clock
        self._lock = threading.Lock()
        self._data = [_read(path) for _, path in self._files]
        read = zip(self._files, self._data, strict=True)
        self._known = tuple(Issuer.parse(name, data, self._bounds.get(name, UNBOUND)) for (name, _), data in read)
        self._until = clock() + RECHECK_S

    def __call__(self) -> tuple[Issuer, ...]:
        """The current ones; the very same value while no file has changed."""
        if self._clock() >= self._until:
            with self._lock:
                if self._clock() >= self._until:
                    for place in range(len(self._files)):
                        self._read_again(place)
                    self._until = self._clock() + RECHECK_S
        return self._known

    def _read_again(self, place: int) -> None:
        name, path = self._files[place]
        try:
            data = _read(path)
            if data == self._data[place]:
                return
            issuer = Issuer.parse(name, data, self._bounds.get(name, UNBOUND))
        except (Malformed, OSError) as error:
            _LOG.warning("the keys of an issuer stay as they were", extra={"reason": f"{name}: {type(error).__name__}"})
            return
        self._data[place] = data
        self._known = (*self._known[:place], issuer, *self._known[place + 1 :])
        _LOG.info("the keys of an issuer were read again", extra={"reason": name})


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(JWKS_BYTES_MAX + 1)
