"""Signatures verified by several processes: what one finds, whichever of them is lost on the way."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ledger.audit.replay import CHUNK, VerificationFailed, verify_book
from ledger.audit.signature_batch import ALONE_MAX, BATCH, SignatureBatch, helper_count, helping
from ledger.book.signatures import signature_process
from ledger.book.signatures.signature_process import SignatureProcess
from ledger.crypto import detached_jws
from ledger.crypto.public_keys import PublicKey
from policy.decisions.gate import gate
from tests.bench.grown import grown
from tests.factories.people import LOG, LOG_KEY, STRANGER
from tests.factories.stored import no_step
from tests.ledger.audit.forge import entries_of, forged, tampered

ENTRIES: Final = 2 * CHUNK + 100
"""Three chunks."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of several chunks."""
    return grown(ENTRIES, tmp_path_factory.mktemp("long"))


@pytest.mark.parametrize("decisions", [True, False])
def test_several_processes_find_what_one_finds(long: Path, decisions: bool) -> None:  # noqa: FBT001
    """A book that is whole, all of it counted."""
    url = f"sqlite:///{long}"
    alone, helped = (
        verify_book(url, LOG, no_step, gate=gate, decisions=decisions, processes=processes) for processes in (0, 1)
    )
    assert helped == alone
    assert (helped.entries, helped.signatures) == (ENTRIES, ENTRIES if decisions else 0)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE entry SET data = substr(data, 1, 40) WHERE position = 1500", "entry 1500: is not JSON"),
        (
            "UPDATE entry SET data = CAST(replace(data, '{', '{ ') AS BLOB) WHERE position = 1024",
            "entry 1024: is not in RFC 8785 f",
        ),
        (
            "UPDATE entry SET data = CAST(replace(data, 'bank-a', 'bank-b') AS BLOB) WHERE position = 1501",
            "tree node 0/1501",
        ),
        ("DELETE FROM entry WHERE position = 1023", "entry 1023: is missing"),
        ("UPDATE entry SET id = 'other' WHERE position = 2047", "entry 2047: is filed under"),
        ("UPDATE charge SET sealing = key_id WHERE id = 'run-700'", "charges: the row of run-700"),
    ],
)
def test_several_processes_name_what_one_names(long: Path, tmp_path: Path, statement: str, said: str) -> None:
    """What is wrong in a later chunk, and with a later entry, is not told instead of the first."""
    also = "UPDATE entry SET data = substr(data, 1, 90) WHERE position = 2100"
    changed = tampered(long, tmp_path / "b", statement if "charge SET" in statement else f"{statement}; {also}")
    reported = []
    for processes in (0, 1):
        with pytest.raises(VerificationFailed) as fault:
            verify_book(f"sqlite:///{changed}", LOG, no_step, decisions=False, processes=processes)
        reported.append((fault.value.index, str(fault.value)))
    assert reported[0] == reported[1]
    assert said in reported[0][1], reported


def test_a_signature_is_named_before_what_is_wrong_later(long: Path, tmp_path: Path) -> None:
    """Signatures are verified behind the entries that are decided again, and still come first."""
    entries = entries_of(long)
    entries[1_500] = replace(entries[1_500], signature=entries[1_498].signature)
    entries[1_600] = replace(entries[1_600], signature=entries[1_598].signature)
    entries[2_099] = replace(entries[2_099], actor=STRANGER)
    lied = forged(long, tmp_path / "lied", entries, LOG_KEY)
    for processes in (0, 1):
        with pytest.raises(VerificationFailed, match="entry 1500: signature"):
            verify_book(f"sqlite:///{lied}", LOG, no_step, processes=processes)


def test_a_short_book_is_read_alone() -> None:
    """Another process would start more slowly than the book is read."""
    assert helper_count(ALONE_MAX) == 0
    assert helper_count(ALONE_MAX + 1) >= 1


KEY: Final = detached_jws.public_key(LOG_KEY)


def _signed(wrong: int) -> list[tuple[int, str, bytes, PublicKey]]:
    """Signatures of several batches, one of which is over other bytes."""
    made = [(index, b"%d" % index) for index in range(4 * BATCH + 7)]
    return [(index, detached_jws.sign(LOG_KEY, b"" if index == wrong else raw), raw, KEY) for index, raw in made]


def _found(helpers: list[SignatureProcess], signed: list[tuple[int, str, bytes, PublicKey]]) -> int | None:
    """The first entry whose signature is found not to verify."""
    batches = SignatureBatch(helpers)
    try:
        for one in signed:
            batches.add(*one)
        batches.finish()
    except VerificationFailed as wrong:
        return wrong.index
    return None


@pytest.mark.parametrize("wrong", [-1, 0, BATCH - 1, BATCH, 3 * BATCH + 1, 4 * BATCH + 6])
def test_the_first_that_is_wrong_is_found_by_any_number_of_processes(wrong: int) -> None:
    """None, one and two, of which one has ended already."""
    signed = _signed(wrong)
    expected = None if wrong < 0 else wrong
    with helping(2, wait=True) as helpers:
        assert _found([], signed) == _found(helpers[:1], signed) == _found(helpers, signed) == expected
        helpers[0].close()
        assert _found(helpers, signed) == expected


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_lost_process_had_to_do_is_done_here(monkeypatch: pytest.MonkeyPatch, end: signal.Signals) -> None:
    """It is killed, or stalls, in the midst of its work: a wrong signature is found all the same."""
    monkeypatch.setattr(signature_process, "ANSWER_S", 0.1)
    signed = _signed(3 * BATCH)
    with helping(1, wait=True) as (helper,):
        batches = SignatureBatch([helper])
        for one in signed[: 2 * BATCH]:
            batches.add(*one)
        os.kill(helper.pid, end)
        for one in signed[2 * BATCH :]:
            batches.add(*one)
        with pytest.raises(VerificationFailed) as wrong:
            batches.finish()
    assert wrong.value.index == 3 * BATCH


_PARENT: Final = """
import sys
from ledger.audit.signature_batch import helping
with helping(1, wait=True) as (helper,):
    print(helper.pid, flush=True)
    sys.stdin.read()
"""


def test_a_process_ends_with_the_one_it_works_for(tmp_path: Path) -> None:
    """Killed outright, so that it can end nothing itself."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": "."}
    with subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        other = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        ended, _, _ = select.select([other], [], [], 60)
        os.close(other)
    assert ended
