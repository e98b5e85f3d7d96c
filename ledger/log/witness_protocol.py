r"""The witness protocol: the bytes of C2SP tlog-witness ``add-checkpoint`` requests and answers.

    old 20852014
    PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=

    epsilon.example/ledger
    ...

A witness stores the newest checkpoint of each log it knows, and cosigns the next one only with a consistency proof
between the two: so it refuses a log whose history was rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ledger.verifier import Note, VerificationError, WitnessKey, from_base64, signature_lines, to_base64, to_text
from ledger.wire.malformed import Malformed

SIZE_TYPE: Final = "text/x.tlog.size"
ANSWER_BYTES_MAX: Final = 262_144
_SIZE_LINE: Final = re.compile(rb"(0|[1-9][0-9]{0,15})\n\Z")


def add_checkpoint(old: int, proof: Sequence[bytes], note: str) -> bytes:
    """The body of a request: the size that the witness knows, the consistency proof from there, the checkpoint."""
    return "\n".join([f"old {old}", *(to_base64(digest) for digest in proof), "", note]).encode()


def read_size(body: bytes) -> int:
    """The size that a witness returns when it knows another size than the one sent (409). Raises: Malformed."""
    match = _SIZE_LINE.match(body)
    if match is None:
        raise Malformed("size", "must be one line with an integer")
    return int(match[1])


def read_cosignature(body: bytes, note: str, key: WitnessKey) -> str:
    """The witness's own line in its answer; lines of unknown keys are ignored.

    Raises:
        Malformed: if the answer is not of signature lines, has none of the witness's, or one that does not verify.
    """
    try:
        text = to_text(body[: ANSWER_BYTES_MAX + 1], "cosignature")
        if len(body) > ANSWER_BYTES_MAX or not text.endswith("\n"):
            raise Malformed("cosignature", "must be signature lines, each with its newline")
        cosignature = Note(Note.parse(note).text, signature_lines(text)).signature_of(key)
    except VerificationError as error:
        raise Malformed("cosignature", error.rule) from None
    if cosignature is None:
        raise Malformed("cosignature", f"is not of {key.name}")
    return f"— {key.name} {to_base64(key.id + cosignature)}\n"


def cosignature_time_ms(line: str) -> int:
    """When a witness cosigned, by its own clock (Unix ms): a cosignature line has the seconds after the key's id."""
    return int.from_bytes(from_base64(line.split(" ")[2].strip(), "cosignature")[4:12], "big") * 1000
