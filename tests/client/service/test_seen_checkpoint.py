"""What a client has seen of a log: only what extends it is trusted, whoever else of its user's programs looks too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.http.problems import Refused, Unreachable
from client.service.seen_checkpoint import Prove, SeenCheckpoint, SeenCheckpointError
from ledger.domain.exit_codes import ExitCode, exit_code_of
from ledger.files.state_folder import state_folder
from tests.ledger.log.memory_log import KEY, Log, log_of

OURS = log_of(40)
FORK = Log([*OURS.entries[:9], *(f"another {place}".encode() for place in range(31))])
URL = "https://ledger.example/"


def proving(log: Log, size: int) -> Prove:
    """A service that has so many entries of a log."""

    def prove(old: int, new: int) -> Sequence[bytes]:
        if new > size:
            raise Refused(404, {})
        return log.consistency(old, new)

    return prove


def seen() -> SeenCheckpoint:
    """As one program has it."""
    return SeenCheckpoint(KEY, URL)


def stored() -> str:
    """The note in the file."""
    return seen().path.read_text(encoding="utf-8")


def no_call(old: int, new: int) -> Sequence[bytes]:
    """Nothing to prove."""
    raise AssertionError((old, new))


def test_the_first_checkpoint_is_taken_as_it_comes() -> None:
    """Into the state folder, by the log's key; the same again needs no proof."""
    assert seen().trust(OURS.note(10), no_call).size == 10
    assert seen().path.is_relative_to(state_folder())
    assert stored() == OURS.note(10)
    seen().trust(OURS.note(10), no_call)


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_one_log_is_trusted_at_every_size(sizes: list[int]) -> None:
    """In any order; what is kept is the largest."""
    seen().path.unlink(missing_ok=True)
    for size in sizes:
        assert seen().trust(OURS.note(size), proving(OURS, 40)).size == size
    assert stored() == OURS.note(max(sizes))


@given(before=st.integers(1, 40), after=st.integers(1, 40))
def test_another_history_is_trusted_only_where_both_are_one(before: int, after: int) -> None:
    """The logs share nine entries. The forger proves what it can, and has the log's key."""
    seen().path.unlink(missing_ok=True)
    seen().trust(OURS.note(before), no_call)
    if min(before, after) <= 9:
        assert seen().trust(FORK.note(after), proving(OURS if before > after else FORK, 40)).size == after
        return
    for log in (OURS, FORK):
        with pytest.raises(SeenCheckpointError, match=rf"goes on from the {before} entries seen before"):
            seen().trust(FORK.note(after), proving(log, 40))
    assert stored() == OURS.note(before)


def test_a_symbolic_link_keeps_what_was_seen_at_its_end(tmp_path: Path) -> None:
    """A state folder that is restored leads to the newest checkpoint all the same."""
    path = seen().path
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(tmp_path / "checkpoint")
    for size in (10, 20):
        seen().trust(OURS.note(size), proving(OURS, 40))
    assert (path.is_symlink(), (tmp_path / "checkpoint").read_text(encoding="utf-8")) == (True, OURS.note(20))
    with pytest.raises(SeenCheckpointError, match="goes on from the 20 entries seen before"):
        seen().trust_empty()
    path.unlink()


def test_a_service_that_was_set_back_is_refused_in_one_sentence() -> None:
    """It has not the entries to prove anything; the sentence names the file, and what to do."""
    seen().trust(OURS.note(30), no_call)
    for shown in (OURS.note(20), FORK.note(20)):
        with pytest.raises(SeenCheckpointError) as caught:
            seen().trust(shown, proving(OURS, 20))
        assert str(caught.value) == (
            f"checkpoint: {URL} does not prove that its log goes on from the 30 entries seen before, as after a "
            f"restored backup or with two histories: trust nothing it answers, give {seen().path} to its operator and "
            "to an auditor, and retry once the newest book is served"
        )
        assert exit_code_of(caught.value) == ExitCode.VERIFICATION_FAILED
    with pytest.raises(SeenCheckpointError, match="from the 30 entries"):
        seen().trust_empty()
    assert seen().trust(OURS.note(31), proving(OURS, 31)).size == 31


def test_an_empty_log_is_trusted_by_who_has_seen_none() -> None:
    """Nothing is kept of it."""
    seen().trust_empty()
    assert not seen().path.exists()


@pytest.mark.parametrize("error", [Refused(503, {}), Unreachable("no answer")])
def test_a_service_that_does_not_answer_is_another_error(error: Exception) -> None:
    """It may be tried again, and nothing is trusted meanwhile."""
    seen().trust(OURS.note(30), no_call)

    def fail(_old: int, _new: int) -> Sequence[bytes]:
        raise error

    with pytest.raises(type(error)):
        seen().trust(OURS.note(31), fail)
    assert stored() == OURS.note(30)


@pytest.mark.parametrize("text", ["", "nothing", FORK.note(20)[:-20], "\udc80"])
def test_a_file_that_cannot_be_read_is_not_a_first_use(text: str) -> None:
    """What was seen is unknown then, and a person decides."""
    seen().trust(OURS.note(30), no_call)
    seen().path.write_text(text, encoding="utf-8", errors="surrogateescape")
    for trust in (seen().trust_empty, lambda: seen().trust(OURS.note(30), no_call)):
        with pytest.raises(SeenCheckpointError, match=r"cannot be read .*: restore .*, or delete it"):
            trust()


@pytest.mark.parametrize("note", ["", "nothing", OURS.note(3).replace("example", "sample"), OURS.note(3)[:-30] + "\n"])
def test_what_the_log_did_not_sign_is_refused(note: str) -> None:
    """And changes nothing."""
    with pytest.raises(SeenCheckpointError, match="check that the log's key and the service's URL belong together"):
        seen().trust(note, no_call)
    assert not seen().path.exists()


def _racing(other: str, ours: Prove) -> Prove:
    """While the service proves, another program of the same user trusts ``other``."""
    racer = [other]

    def prove(old: int, new: int) -> Sequence[bytes]:
        while racer:
            seen().trust(racer.pop(), proving(FORK if other == FORK.note(35) else OURS, 40))
        return ours(old, new)

    return prove


def test_a_slower_program_does_not_set_the_file_back() -> None:
    """Both prove from 5; the one with the smaller checkpoint comes last, and proves again from the other's."""
    seen().trust(OURS.note(5), no_call)
    assert seen().trust(OURS.note(20), _racing(OURS.note(35), proving(OURS, 40))).size == 20
    assert stored() == OURS.note(35)


def test_two_histories_shown_to_two_programs_at_once_are_noticed() -> None:
    """Each extends what both had seen; the one that comes second is refused."""
    seen().trust(OURS.note(5), no_call)
    for log in (OURS, FORK):
        with pytest.raises(SeenCheckpointError, match="from the 35 entries seen before"):
            seen().trust(OURS.note(20), _racing(FORK.note(35), proving(log, 40)))
    assert stored() == FORK.note(35)


def test_a_state_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is trusted that cannot be remembered."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    attempts: tuple[Callable[[], object], ...] = (lambda: seen().trust(OURS.note(5), no_call), seen().trust_empty)
    for attempt in attempts:
        with pytest.raises(OSError, match="Not a directory"):
            attempt()
