"""The inputs and the report of ``epsilon db rescue``: the heads that the new book must hold, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from client.cli.command_group import Result
from ledger.book.checkpoint_file import default_path
from ledger.cli.input_files import read_kept
from ledger.store.log_key.rotation_proofs import Trust
from ledger.verifier import Checkpoint, LogKey, Policy
from ledger.wire.malformed import Malformed
from migrations.connect.book_location import Place
from migrations.connect.exclusive_access import Limits
from migrations.transfer.log_check import Head, Step
from migrations.transfer.rescue import rescue
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
        without_kept: whether the user accepts that there is none.

    Raises:
        Malformed: if no checkpoint was kept and that is not accepted, or one is not of this log.
    """
    sizes: list[int] = []

    def heads(trust: Trust) -> dict[str, Checkpoint]:
        found = _heads(kept, trust)
        if not found and not without_kept:
            raise Malformed(
                "kept",
                "name the newest checkpoint that you or a witness kept with --kept, or give --without-kept: without "
                "one it is unknown whether the rescue gives back budgets that were spent after the last sound entry",
            )
        sizes.extend(head.size for head in found.values())
        return found

    head, prefix = rescue(place, target, key, heads, limits, ignore_seal=ignore_seal, step=step)
    return _result(place, target, head, prefix, max(sizes, default=None))


def _heads(kept: Sequence[Path], trust: Trust) -> dict[str, Checkpoint]:
    """Each kept checkpoint, by its name in messages: those named, and the service's own for each key of the log.

    Raises:
        Malformed, FileNotFoundError.
    """
    heads = {str(path): read_kept(path, trust) for path in kept}
    for key in trust.logs if isinstance(trust, Policy) else (trust,):
        with suppress(FileNotFoundError):
            own = default_path(key)
            heads[f"what the service kept at {own}"] = read_kept(own, trust)
    return heads


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
