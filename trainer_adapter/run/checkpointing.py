"""The checkpoint that a killed run resumes from: the clean room's keys, and model and optimiser at the end of a block.

Without ``[train.resume]`` both keys of a clean room die with its process, and so does its run. With it they are saved
in the run's folder, sealed with AES-256-GCM under a key in a file: on hardware that attests, the sealing key of the
enclave; here any user who can read the file can read the state. A file is bound to its charge, its plan and its name.

    room.state   the identity, written before the charge is sent
    run.state    model and optimiser as safetensors; a step, all of whose predecessors count; written between blocks
    model.state  of a run that leases its steps, the model that its post names; written before the post

What is lost between the last save and the end of the process was charged and stays charged: the run is resumed at the
first step that was never begun, on fresh randomness. One process at a time resumes a run (:func:`locked`). A run that
leases its steps goes on after all that the ledger has leased, so a folder that was copied or put back takes none of
them again. Of one that does not, a state that is newer than the step log, or a step log behind the last progress
report, was put back by hand and is refused; a whole folder put back to an earlier time on a machine that reported no
progress since is not detected.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from client.keys.signer import load_secret
from ledger.files.atomic_file import create_file, replace_file
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
IDENTITY_BYTES_MAX: Final = 65_536
IDENTITY_FILE: Final = "room.state"
RUN_FILE: Final = "run.state"
MODEL_FILE: Final = "model.state"


class Stateful(Protocol):
    """An object with a state of numbers, text and lists of them, as schedulers have."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> object:
        """Restore it."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is.

    Attributes:
        step: every step up to here counts, even if the step log has more; none after it was taken if the run ``ended``.
        ended: whether the run was over, so that only its post and its model are left.
    """

    step: int
    ended: bool


class CheckpointStore:
    """The sealed files of one run."""

    def __init__(self, assignment: Assignment) -> None:
        """The key's file is made where there is none. Raises: Malformed, OSError."""
        assert assignment.resume is not None
        self._folder, self.every_s = assignment.output, assignment.resume.every_s
        path = assignment.resume.key
        if not path.exists():
            create_file(path, os.urandom(KEY_BYTES))
        self._aead = AESGCM(load_secret(path, KEY_BYTES))
        self._bound: c.Object = {"charge": assignment.id, "plan": assignment.plan.digest, "v": 1}

    def save_identity(self, identity: CleanRoomIdentity) -> None:
        """On disk, sealed, when this returns. Raises: OSError."""
        self._write(IDENTITY_FILE, c.dump(identity.to_json()))

    def delete_identity(self) -> None:
        """Remove the identity of a charge that was never made. Raises: OSError."""
        (self._folder / IDENTITY_FILE).unlink(missing_ok=True)

    def load_identity(self) -> CleanRoomIdentity | None:
        """The identity that was saved; None if none was, so nothing was charged. Raises: Malformed, OSError."""
        if not (self._folder / IDENTITY_FILE).exists():
            return None
        return CleanRoomIdentity.parse(c.parse(self._read(IDENTITY_FILE), IDENTITY_BYTES_MAX, "room"))

    def save_run(
        self, at: Position, model: nn.Module, optimiser: torch.optim.Optimizer, also: Mapping[str, Stateful]
    ) -> None:
        """On disk, sealed, when this returns. Raises: OSError, TypeError for a state that is no JSON."""
        self._write(RUN_FILE, state_bytes(at, model, optimiser, also))

    def load_run(self, model: nn.Module, optimiser: torch.optim.Optimizer, also: Mapping[str, Stateful]) -> Position:
        """Restore what was saved last; the first step if nothing was. Raises: Malformed, OSError."""
        if not (self._folder / RUN_FILE).exists():
            return Position(0, ended=False)
        return restore_state(self._read(RUN_FILE), model, optimiser, also)

    def save_model(self, data: bytes) -> None:
        """Keep the model that the post is about to name, sealed. Raises: OSError."""
        self._write(MODEL_FILE, data)

    def load_model(self) -> bytes:
        """The model that was saved before the post; nothing if none was. Raises: Malformed, OSError."""
        return self._read(MODEL_FILE) if (self._folder / MODEL_FILE).exists() else b""

    def _write(self, name: str, data: bytes) -> None:
        nonce = os.urandom(NONCE_BYTES)
        replace_file(self._folder / name, nonce + self._aead.encrypt(nonce, data, self._of(name)))

    def _read(self, name: str) -> bytes:
        data = (self._folder / name).read_bytes()
        try:
            return self._aead.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._of(name))
        except (InvalidTag, ValueError):
            raise Malformed(name, "was not sealed for this run under this key") from None

    def _of(self, name: str) -> bytes:
        return c.dump({**self._bound, "name": name})


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run's folder for one process at a time. Raises: Malformed, if another process has it; OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Malformed("output", f"{folder} is in use by another process") from None
        yield
    finally:
        os.close(descriptor)


def state_bytes(
    at: Position, model: nn.Module, optimiser: torch.optim.Optimizer, also: Mapping[str, Stateful]
) -> bytes:
    """Position, model, optimiser and the rest as safetensors. Raises: TypeError, for a state that is no JSON."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    saved = optimiser.state_dict()
    plain: dict[str, dict[str, Any]] = {}
    for place_of, state in saved["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser.{place_of}.{name}"] = value
            else:
                plain.setdefault(str(place_of), {})[name] = value
    about = {
        "also": {name: state.state_dict() for name, state in also.items()},
        "ended": at.ended,
        "groups": saved["param_groups"],
        "plain": plain,
        "step": at.step,
        "v": 1,
    }
    still = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    return save(still, {"about": json.dumps(about)})


def restore_state(
    data: bytes, model: nn.Module, optimiser: torch.optim.Optimizer, also: Mapping[str, Stateful]
) -> Position:
    """The inverse of :func:`state_bytes`. Raises: Malformed, for the state of another model or optimiser."""
    # Sealed under our key, so what cannot be read is a bug of ours or from another version, and no attack.
    try:
        about, tensors = _about(data), load(data)
        model.load_state_dict(_under("model.", tensors))
        state: dict[int, dict[str, Any]] = {int(at): dict(plain) for at, plain in about["plain"].items()}
        for name, value in _under("optimiser.", tensors).items():
            at, _, member = name.partition(".")
            state.setdefault(int(at), {})[member] = value
        optimiser.load_state_dict({"state": state, "param_groups": about["groups"]})
        for name, stateful in also.items():
            stateful.load_state_dict(about["also"][name])
        return Position(c.integer(about["step"], "step", 0, 2**53 - 1), c.boolean(about["ended"], "ended"))
    except (SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise Malformed(RUN_FILE, f"does not fit this model and optimiser ({type(error).__name__})") from error


def _about(data: bytes) -> dict[str, Any]:
    # The header of safetensors: eight bytes of length, then JSON, with our text among its metadata.
    length = int.from_bytes(data[:8], "little")
    about: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["about"])
    return about


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
