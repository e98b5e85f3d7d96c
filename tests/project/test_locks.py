"""The locks: everything pinned by hash, no place named, PyTorch's own builds left to whoever installs."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
PIN = re.compile(r"[a-z0-9-]+==[A-Za-z0-9.]+(?: ; [a-z_ ()'=!<>.*0-9A-Z]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


@pytest.mark.parametrize(
    "lock",
    [
        "bench.lock",
        "browser.lock",
        "dev.lock",
        "docs.lock",
        "kernels.lock",
        "mutants.lock",
        "notebooks.lock",
        "service.lock",
        "train.lock",
        "witness.lock",
    ],
)
def test_a_lock_names_only_versions_and_hashes(lock: str) -> None:
    """Each line is a pin, a hash of the pin above it, or a comment at the head."""
    lines = (HOME / lock).read_text().splitlines()
    rest = [line for line in lines if not line.startswith("#")]
    assert [line for line in rest if not PIN.fullmatch(line) and not HASH.fullmatch(line)] == []
    assert all(HASH.fullmatch(after) for at, after in pairwise(rest) if PIN.fullmatch(at))


def test_the_locks_share_no_name_and_hold_no_build_of_pytorch() -> None:
    """What one pins, no other pins again; torch, triton and CUDA are in none."""
    locks = ("dev.lock", "train.lock", "bench.lock", "mutants.lock", "witness.lock")
    development, training, peers, mutation, others = (set(_names(lock)) for lock in locks)
    everything = development | training | peers | mutation | others
    assert len(everything) == len(development) + len(training) + len(peers) + len(mutation) + len(others)
    assert [name for name in everything if re.match("torch$|triton|nvidia|cuda", name)] == []
    assert {"hatchling", "editables", "pytest"} <= development
    assert {"filelock", "opendp", "safetensors", "sympy"} <= training
    assert {"diffprivlib", "opake"} <= peers
    assert {"mutmut", "libcst"} <= mutation
    # The site's builder lies in a folder of its own, as the mutants' tool does: the two may share names.
    builder = set(_names("docs.lock"))
    assert not builder & (development | training)
    assert {"furo", "myst-parser", "sphinx"} <= builder
    drawing = set(_names("notebooks.lock"))
    assert not drawing & (development | training)
    assert {"matplotlib", "pandas"} <= drawing
    walks = set(_names("browser.lock"))
    assert not walks & (development | training)
    assert "playwright" in walks
    # Triton alone, of which PyTorch's builds for CUDA bring one of their own.
    assert _names("kernels.lock") == ["triton"]
    assert others == {"aics-tlog", "aics-witness", "metamorphic-log"}


def _names(lock: str) -> list[str]:
    return re.findall(r"^([a-z0-9-]+)==", (HOME / lock).read_text(), re.MULTILINE)
