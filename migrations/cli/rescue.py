"""The inputs and the report of ``epsilon db rescue``: the heads that the new book must hold, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from client.cli.command_group import Result
from ledger.book.checkpoint_file import NOTE_BYTES_MAX, default_path, stated_size
from ledger.cli.input_files import read_kept
from ledger.verifier import Checkpoint, LogKey
from ledger.wire.malformed import Malformed
from migrations.connect.book_location import Place
from migrations.connect.exclusive_access import Limits
from migrations.transfer.later_keys import LogKeys, logs_of
from migrations.transfer.log_check import Head, Step
from migrations.transfer.rescue import KnownHeads, rescue
from migrations.transfer.sound_prefix import SoundPrefix


def rescue_book(  # noqa: PLR0913 - one argument for each option of the command
    place: Place,
    target: Place,
    key: LogKey,
    kept: Sequence[Path],
    limits: Limits,
    *,
    step: Step,
    without_kept: bool,
    ignore_seal: bool,
) -> Result:
    """Rescue a book: see :func:`migrations.transfer.rescue.rescue`.

    Args:
        kept: files with kept checkpoints; the service's own, in the user's state folder, is read too.
        without_kept: whether the user accepts that there is none, and that there may be one by a key that the book
            does not prove.

    Raises:
        Malformed: if no checkpoint was kept and that is not accepted, or one is not of this log.
    """
    sizes: list[int] = []

    def heads(keys: LogKeys) -> KnownHeads:
        found = _heads(kept, keys)
        if not found.proven and not without_kept:
            raise Malformed(
                "kept",
                "name the newest checkpoint that you or a witness kept with --kept, or give --without-kept: without "
                "one it is unknown whether the rescue gives back budgets that were spent after the last sound entry",
            )
        sizes.extend(head.size for head in found.proven.values())
        return found

    head, prefix = rescue(
        place, target, key, heads, limits, ignore_seal=ignore_seal, ignore_unproven=without_kept, step=step
    )
    return _result(place, target, head, prefix, max(sizes, default=None))


def _heads(kept: Sequence[Path], keys: LogKeys) -> KnownHeads:
    """Each kept checkpoint, by its name in messages: those named, and what services of this user kept of this log.

    Raises:
        Malformed, FileNotFoundError.
    """
    proven = {str(path): _opened(path, keys) for path in kept}
    own, others = _service_files(keys)
    for path in own:
        with suppress(FileNotFoundError):
            proven[_called(path)] = _opened(path, keys)
    sizes = {_called(path): stated_size(_text_of(path), logs_of(keys.trust)[0].origin) for path in others}
    return KnownHeads(proven, {called: size for called, size in sizes.items() if size is not None})


def _service_files(keys: LogKeys) -> tuple[list[Path], list[Path]]:
    """Where services of this user keep what is by the log's keys, and every other file beside those."""
    try:
        own = [default_path(key) for key in (*logs_of(keys.trust), *keys.later)]
    except FileNotFoundError:
        # Without a folder for the user's state nothing is kept in it.
        return [], []
    return own, sorted(set(own[0].parent.glob("[!.]*")) - set(own))


def _opened(path: Path, keys: LogKeys) -> Checkpoint:
    """A checkpoint by a key of the log, or by one that its entries name. Raises: Malformed, FileNotFoundError."""
    for key in keys.later:
        with suppress(Malformed):
            return read_kept(path, key)
    return read_kept(path, keys.trust)


def _called(path: Path) -> str:
    return f"what the service kept at {path}"


def _text_of(path: Path) -> str:
    """What a file of another log's holds; nothing, where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(NOTE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def _result(place: Place, target: Place, head: Head, prefix: SoundPrefix, kept: int | None) -> Result:
    signed = 0 if prefix.signed is None else prefix.signed.size
    left_out = {
        "checkpoints": prefix.left_out["checkpoints"],
        "cosignatures": prefix.left_out["cosignatures"],
        "documents": prefix.left_out["documents"],
        "entries": prefix.entries - head.size,
        "seal": prefix.successor,
    }
    value = {
        "book": target.display_name,
        "entries": head.size,
        "kept": kept,
        "left_out": left_out,
        "reason": prefix.reason if left_out["entries"] else None,
        "root": head.root.hex(),
        "signed": signed,
        "source": place.display_name,
    }
    omitted = [f"{count} {name}" for name, count in left_out.items() if name != "seal" and count]
    omitted += [f"the seal that names {prefix.successor}"] if prefix.successor is not None else []
    because = f" ({prefix.reason})" if left_out["entries"] else ""
    lost = (
        f" The log's key has signed {signed} entries: what was acknowledged after entry {head.size - 1} is lost, and "
        "budgets spent by it are given back."
        if signed > head.size
        else ""
    )
    return Result(
        value,
        f"{target.display_name} holds the first {head.size} entries of {place.display_name}, replayed and verified. "
        f"Left out: {', '.join(omitted) or 'nothing'}{because}.{lost} Keep {place.display_name} as evidence, and open "
        "it no more",
    )
