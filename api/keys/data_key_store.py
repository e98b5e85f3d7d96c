"""Key stores: where a provider's data keys are, behind one small interface.

*Authorise only* is for providers whose own key-management system checks the receipt of the key-release entry:
no data key ever comes here. *File* is for demonstrations: data keys lie unencrypted in files of mode 0600.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.hpke_envelope import DATA_KEY_BYTES
from client.keys.sealed_model import open_deposit
from ledger.files.atomic_file import create_file, sync_folder
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

RELEASED: Final = "released"
MODELS: Final = "models"
"""The folders of envelopes and of sealed models' keys; no provider's, whose names are DIDs."""
_DEPOSIT: Final = "deposit"
_WATERMARK: Final = "watermark"
"""The store's own secrets, among the folders of charges."""


@final
class Secret:
    """A secret in memory, redacted: nothing that prints, logs, formats or pickles it shows its bytes."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        """Hold ``value``."""
        self._value = value

    def reveal(self) -> bytes:
        """The bytes, for the one call that needs them."""
        return self._value

    def __repr__(self) -> str:
        """Redact it; ``str`` and format fall back to this."""
        return "Secret(redacted)"

    def __reduce__(self) -> NoReturn:
        """Refuse to leave the process. Raises: TypeError."""
        raise TypeError("a secret is not pickled")


class KeyUnavailable(Exception):  # noqa: N818 - reads as what it says
    """The store holds no such data key that it may give out; names it, and never shows its bytes."""


class KeyStore:
    """Where data keys are. This one holds none and authorises only: the receipt of the key release is the authority."""

    @property
    def deposit(self) -> str | None:
        """The X25519 key (base64url) that keys of sealed models are encrypted to; None where no deposits are taken."""
        return None

    def gives(self, provider: str) -> bool:  # noqa: ARG002 - the interface's arguments
        """Whether a provider's data keys are given out here; otherwise the provider gives them out itself."""
        return False

    def data_key(self, provider: str, name: str) -> Secret | None:  # noqa: ARG002 - the interface's arguments
        """The data key ``name`` of ``provider``; None where the provider gives it out itself.

        Raises:
            KeyUnavailable: if the store should hold it and cannot give it.
        """
        return None

    def deposit_model_key(self, charge: str, model: str, sealed: str) -> None:  # noqa: ARG002 - the interface's arguments
        """Store the key of a sealed model, encrypted so that only this store can open it; the same again is no change.

        Raises:
            Malformed: if it was sealed to another store, or for another charge or model.
            KeyUnavailable: if it cannot be stored.
        """
        raise KeyUnavailable(
            f"the key of model {model} of {charge} has to go to the provider's store: none is held here"
        )

    def model_key(self, charge: str, model: str) -> Secret | None:  # noqa: ARG002 - the interface's arguments
        """The key of a sealed model; None where the provider gives it out itself. Raises: KeyUnavailable."""
        return None

    def watermark_secret(self) -> Secret | None:
        """The secret that keys of models' marks are derived from; None where none is kept. Raises: KeyUnavailable."""
        return None

    def store_envelope(self, release: str, envelope: bytes) -> bytes:  # noqa: ARG002 - the interface's arguments
        """Store the envelope of a key release, and return the one that was stored first.

        Raises:
            KeyUnavailable: if it cannot be stored: then it is not given out either.
        """
        return envelope

    def stored_envelope(self, release: str) -> bytes | None:  # noqa: ARG002 - the interface's arguments
        """The stored envelope of a key release. Raises: KeyUnavailable, if it cannot be read."""
        return None


class FileKeyStore(KeyStore):
    """Data keys in files, one folder per provider, each readable by its owner alone."""

    def __init__(self, folder: Path) -> None:
        """Store keys under ``folder``, made with mode 0700 if it is not there."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def gives(self, provider: str) -> bool:
        """Whether there is a folder of the provider's."""
        return (self._folder / c.did(provider, "provider")).is_dir()

    def create(self, provider: str, name: str) -> Secret:
        """A fresh data key, on disk before it is returned. Raises: FileExistsError, Malformed, OSError."""
        path = self._path(provider, name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        value = secrets.token_bytes(DATA_KEY_BYTES)
        create_file(path, value)
        return Secret(value)

    def data_key(self, provider: str, name: str) -> Secret | None:
        """The key in its file. Raises: KeyUnavailable."""
        try:
            handle = os.open(self._path(provider, name), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as file:
                readable_by_others = stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077
                value = file.read(DATA_KEY_BYTES + 1)
        except (OSError, Malformed) as error:
            raise KeyUnavailable(f"the data key {name} of {provider} cannot be read ({type(error).__name__})") from None
        if readable_by_others:
            raise KeyUnavailable(f"the data key {name} of {provider} may be read by others: chmod 600 its file")
        if len(value) != DATA_KEY_BYTES:
            raise KeyUnavailable(f"the data key {name} of {provider} does not have {DATA_KEY_BYTES} bytes")
        return Secret(value)

    @property
    def deposit(self) -> str:
        """The public half of its deposit key, which is made at its first use. Raises: OSError."""
        return c.base64url(self._deposit().public_key().public_bytes_raw())

    def deposit_model_key(self, charge: str, model: str, sealed: str) -> None:
        """Open the deposit, to check it, and store it. Raises: Malformed, KeyUnavailable."""
        key = open_deposit(sealed, self._deposit(), charge, model)
        if self._store_once(self._model(charge, model), key, f"the key of model {model}") != key:
            raise Malformed("sealed", "is another key than the one that was deposited for this model before")

    def model_key(self, charge: str, model: str) -> Secret:
        """The key in its file. Raises: KeyUnavailable."""
        key = self._stored(self._model(charge, model), f"the key of model {model}")
        if key is None or len(key) != DATA_KEY_BYTES:
            raise KeyUnavailable(f"no key was deposited for model {model} of charge {charge}")
        return Secret(key)

    def watermark_secret(self) -> Secret:
        """In its file, made at its first use. Raises: KeyUnavailable."""
        return Secret(self._own_secret(_WATERMARK, secrets.token_bytes(DATA_KEY_BYTES), "the secret of watermarks"))

    def _deposit(self) -> X25519PrivateKey:
        fresh = X25519PrivateKey.generate().private_bytes_raw()
        return X25519PrivateKey.from_private_bytes(self._own_secret(_DEPOSIT, fresh, "the deposit key"))

    def _own_secret(self, name: str, fresh: bytes, what: str) -> bytes:
        """A secret of the store in its file, made at its first use. Raises: KeyUnavailable."""
        path = self._folder / MODELS / name
        stored = self._store_once(path, fresh, what)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise KeyUnavailable(f"{what} may be read by others: chmod 600 {path.name} in the folder {MODELS}")
        if len(stored) != len(fresh):
            raise KeyUnavailable(f"{what} does not have {len(fresh)} bytes")
        return stored

    def _model(self, charge: str, model: str) -> Path:
        name = c.name(charge, "charge")
        # No name begins with a dot, so the folder of a charge that is named like a secret is no other's.
        folder = f".{name}" if name in {_DEPOSIT, _WATERMARK} else name
        return self._folder / MODELS / folder / c.sha256(model, "model")

    def store_envelope(self, release: str, envelope: bytes) -> bytes:
        """On disk before it is given back; of two at once, both get the first. Raises: KeyUnavailable."""
        return self._store_once(self._envelope(release), envelope, f"the envelope of {release}")

    def stored_envelope(self, release: str) -> bytes | None:
        """What its file holds. Raises: KeyUnavailable."""
        return self._stored(self._envelope(release), f"the envelope of {release}")

    def _store_once(self, path: Path, data: bytes, what: str) -> bytes:
        """Whole and on disk, or what was there before. Raises: KeyUnavailable."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                create_file(path, data)
            # Of two at once, the other may not have come as far.
            sync_folder(path.parent)
        except OSError as error:
            raise KeyUnavailable(f"{what} cannot be stored ({type(error).__name__})") from None
        stored = self._stored(path, what)
        if stored is None:
            raise KeyUnavailable(f"{what} was not stored")
        return stored

    def _stored(self, path: Path, what: str) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise KeyUnavailable(f"{what} cannot be read ({type(error).__name__})") from None

    def _envelope(self, release: str) -> Path:
        return self._folder / RELEASED / c.name(release, "id")

    def _path(self, provider: str, name: str) -> Path:
        # Neither form admits a slash or a leading dot, so no name leads out of the folder.
        return self._folder / c.did(provider, "provider") / c.name(name, "data_key")
