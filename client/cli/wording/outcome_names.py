"""What a command is about, as people name it: the start of the sentence that reports its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from client.cli.wording.organisation_names import organisation
from ledger.command_line.verbosity import is_verbose

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Json, Object

_PARTITION: Final = ("provider", "dataset", "partition")
"""Of a partition that is opened; together they are its reference."""
_SUBJECTS: Final = ("charge", "partition", "organisation", "members", "organisations")
"""Of the body of any other command, the first of these is what it is about."""


def subject_of(kind: str, body: Object) -> str:
    """What a command of this kind and body is about; the kind alone where its body names nothing."""
    word = kind.replace("_", " ")
    if kind == "partition":
        return f"{word} {'/'.join(str(body.get(part)) for part in _PARTITION)}"
    subject = next((field for field in _SUBJECTS if body.get(field)), None)
    return word if subject is None else f"{word} of {_text(body[subject])}"


def named_document(kind: str, path: Path, digest: str) -> str:
    """A document by the file that the user named; with its digest under --verbose."""
    return f"{kind} {path}{f' ({digest})' if is_verbose() else ''}"


def _text(value: Json) -> str:
    return ", ".join(organisation(str(item)) for item in (value if isinstance(value, list) else [value]))
