"""``epsilon up``: a folder for development, made and run in one process until it is interrupted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from errno import EADDRINUSE
from pathlib import Path
from typing import Final

from api.server.http_server import listen
from api.setup import development_folder as development
from api.setup.development_folder import DevelopmentFolder, FolderTaken, Mark
from ledger.command_line.shell_commands import epsilon_command, shown

Report = Callable[[str], None]
PORT: Final = 8000
ISSUER_PORT: Final = 8100


def run_development(
    folder: Path, port: int | None, issuer_port: int | None, report: Report, received: Sequence[int] = ()
) -> None:
    """Make what is missing of a folder and serve it until it is interrupted.

    Args:
        port: of the service, and ``issuer_port`` of the issuer: 0 for any free one; None for the folder's own, or
            8000 and 8100 in a new folder.
        report: gets each line for people.
        received: the signals that came (:mod:`api.cli.interrupts`).

    Raises:
        FolderTaken: with one sentence that says what to do.
        BookUnusable, Refused, Unreachable, Malformed, OSError.
    """
    if not development.is_ours_or_free(folder):
        raise FolderTaken(f"{shown(folder)} holds what `epsilon up` did not make: name another folder")

    def step(line: str) -> None:
        """Report it, unless an interrupt was dropped."""
        if received:
            raise KeyboardInterrupt
        report(line)

    try:
        with ExitStack() as opened:
            made, listeners = _claim_folder(folder, port, issuer_port, opened)
            step(f"Making what is missing in {shown(folder)}: keys, profiles, book.")
            development.complete(made)
            step("Starting the service and the development issuer.")
            _start(made, listeners, opened, step)
            for line in _summary(made):
                step(line)
            # Never set: to wait for it is to wait for a signal.
            threading.Event().wait()
    except KeyboardInterrupt:
        report(f"Stopped. To go on: {epsilon_command('up', folder)}")


def _claim_folder(
    folder: Path, port: int | None, issuer_port: int | None, opened: ExitStack
) -> tuple[DevelopmentFolder, tuple[socket.socket, socket.socket]]:
    """The folder, held by this process, and what listens on its two ports. Raises: FolderTaken, OSError."""
    mark = development.read_mark(folder)
    if mark is None:
        # Before the folder is made: a port that is taken then leaves nothing behind.
        listeners = (
            opened.enter_context(_listening(PORT if port is None else port, "--port")),
            opened.enter_context(_listening(ISSUER_PORT if issuer_port is None else issuer_port, "--issuer-port")),
        )
        development.claim(folder, *(listener.getsockname()[1] for listener in listeners))
        opened.enter_context(development.hold_folder(folder))
        claimed = development.read_mark(folder)
        assert claimed is not None
        return DevelopmentFolder(folder, claimed), listeners
    opened.enter_context(development.hold_folder(folder))
    _check_ports(folder, mark, port, issuer_port)
    return DevelopmentFolder(folder, mark), (
        opened.enter_context(_listening(mark.port, "")),
        opened.enter_context(_listening(mark.issuer_port, "")),
    )


def _check_ports(folder: Path, mark: Mark, port: int | None, issuer_port: int | None) -> None:
    """Raises: FolderTaken, where other ports are given than the folder's profiles name."""
    for option, given, own in (("--port", port, mark.port), ("--issuer-port", issuer_port, mark.issuer_port)):
        if given is not None and given != own:
            raise FolderTaken(
                f"the profiles in {shown(folder)} name port {own}: leave {option} out, or name another folder"
            )


def _listening(port: int, option: str) -> socket.socket:
    """A socket that listens on loopback. Raises: FolderTaken, if the port is in use; OSError."""
    try:
        return listen(development.HOST, port)
    except OSError as error:
        if error.errno != EADDRINUSE:
            raise
        instead = f"choose another one with {option}" if option else "name another folder"
        raise FolderTaken(f"port {port} is in use: stop what listens there, or {instead}") from None


def _start(
    folder: DevelopmentFolder, listeners: tuple[socket.socket, socket.socket], opened: ExitStack, report: Report
) -> None:
    # Only now, because it takes a second.
    from api.cli.service_process import preload_pricing
    from api.setup.development_server import publish_policy, register_parties, run_server
    from api.setup.example_documents import write_examples
    from ledger.book.wall_clock import unix_ms

    opened.enter_context(run_server(folder, *listeners))
    report("Registering the parties and publishing the policy.")
    register_parties(folder)
    publish_policy(folder)
    write_examples(folder, unix_ms() // 1000 * 1000)
    report("Loading what prices a run.")
    preload_pricing()


def _summary(folder: DevelopmentFolder) -> Iterator[str]:
    """What was made, what of it proves nothing, and what to do next."""
    path = folder.path
    yield ""
    yield f"In {shown(path)}, readable by you alone:"
    yield "  sro.toml tdp.toml tdc.toml auditor.toml"
    yield "      profiles of a regulator, a data provider, a data consumer and an"
    yield "      auditor: registered, each with its key; no login is needed"
    yield "  policy.yaml      published for the domain 'development'"
    yield "  dataset.yaml records.csv partition.json contract.yaml charge.json"
    yield "      examples to start from"
    yield "  book.sqlite      the ledger; log.vkey is the key that verifies it"
    yield "  profile.toml     the service and the issuer"
    yield ""
    yield "For development only. These prove nothing:"
    yield "  the issuer       a key in keys/ is enough to be that party"
    yield "  the attester     keys/attester.pem signs for any clean room"
    yield "  data-keys/       data keys, unencrypted"
    yield ""
    yield "Next, in another terminal:"
    yield ""
    for command in next_commands(path):
        yield f"  {command}"
    yield ""
    yield f"The service is {folder.service}, the issuer {folder.issuer}."
    yield "To look at it with a browser, as sro, tdp, tdc, auditor or operator:"
    yield f"  {folder.service}/"
    yield "Serving until interrupted."


def next_commands(path: Path) -> tuple[str, ...]:
    """From the registered parties to a quote: lines of shell that work as printed, in this order."""
    from shlex import quote

    tdp, tdc, contract, signature = (path / name for name in ("tdp.toml", "tdc.toml", "contract.yaml", "tdp.jws"))
    commitments, records = path / "commitments", ("--target", "outcome", "--identity", "person")
    return (
        epsilon_command("dataset", "register", tdp, path / "dataset.yaml"),
        epsilon_command("dataset", "commit", path / "records.csv", *records, "--out", commitments),
        epsilon_command(
            *("dataset", "open-partition", tdp, path / "partition.json"),
            *("--commitments", commitments / "share" / "commitments-1.bin"),
        ),
        f"{epsilon_command('contract', 'sign', tdp, contract)} > {quote(shown(signature))}",
        epsilon_command("contract", "enter", tdc, contract, "--signature", signature),
        epsilon_command("quote", tdc, path / "charge.json", "--contract", contract),
        epsilon_command("account", path / "auditor.toml"),
    )
