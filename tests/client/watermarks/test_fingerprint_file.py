"""The form in which weights are sent to be searched."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from client.watermarks import fingerprint_file
from client.watermarks.fingerprint_file import read_fingerprint, write_fingerprint
from ledger.wire.malformed import Malformed

FOUND: dict[tuple[int, ...], NDArray[np.float32]] = {
    (16, 32): np.arange(512, dtype=np.float32).reshape(16, 32),
    (300, 2): np.ones((300, 2), np.float32),
}
DATA = write_fingerprint(FOUND)
HEAD = b'{"shapes":[[300,2],[16,32]],"v":1}'


def test_what_was_written_is_read() -> None:
    """The same values under the same shapes, the largest first."""
    read = read_fingerprint(DATA)
    assert list(read) == [(300, 2), (16, 32)]
    assert all(np.array_equal(read[shape], values) for shape, values in FOUND.items())
    assert DATA.startswith(HEAD + b"\n")


def test_the_smallest_shapes_are_left_out_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest that fit are enough; none that fits is an error."""
    monkeypatch.setattr(fingerprint_file, "VALUES_MAX", 700)
    assert write_fingerprint(FOUND).startswith(b'{"shapes":[[300,2]],"v":1}\n')
    monkeypatch.setattr(fingerprint_file, "VALUES_MAX", 400)
    with pytest.raises(Malformed, match=r"^model: has no matrix of at most 400 values$"):
        write_fingerprint(FOUND)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "fingerprint: must begin with a line of JSON"),
        (b"[]\n", "must be an object"),
        (HEAD.replace(b"1}", b"2}") + b"\n", "v: must be 1"),
        (HEAD + b"\n" + bytes(8), "fingerprint: must hold 1112 values of 4 bytes"),
        (DATA + b"x", "fingerprint: must hold 1112 values of 4 bytes"),
        (b'{"shapes":[],"v":1}\n', "shapes: must name 1 to 1024 shapes, each once"),
        (b'{"shapes":[[16,32],[16,32]],"v":1}\n' + bytes(4_096), "shapes: must name 1 to 1024 shapes, each once"),
        (b'{"shapes":[[512]],"v":1}\n' + bytes(2_048), r"shapes: name \[512\], and no tensor of that shape is marked"),
        (b'{"shapes":[[4096,4097]],"v":1}\n', "fingerprint: must hold 16781312 values of 4 bytes, 16777216 at most"),
        (b'{"shapes":[[16,32]],"v":1}\n' + b"\xff" * 2_048, "fingerprint: holds a value that is not finite"),
    ],
)
def test_what_is_no_fingerprint_is_refused(data: bytes, rule: str) -> None:
    """With the field and the rule."""
    with pytest.raises(Malformed, match=rule):
        read_fingerprint(data)
