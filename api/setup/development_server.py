"""The service and the issuer of a development folder in one process, and what its book holds before they are used."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import structs

from api.app import create_app
from api.auth.jwks_files import IssuerFiles
from api.dev_issuer.issuer import IssuerSettings, Person
from api.dev_issuer.routes import create_issuer_app
from api.keys.data_key_store import FileKeyStore
from api.server.http_server import serving
from api.setup.development_folder import PARTIES, SRO, TDP, DevelopmentFolder
from api.setup.example_documents import DOMAIN, POLICY, write_policy
from api.setup.key_files import service_secret, verifier_key
from client.http.problems import Refused
from client.keys.signer import Signer, load_private
from client.profile.profile import Profile
from client.service.detached_signatures import read_document
from client.service.registration import registration
from ledger.book.book import Book
from ledger.book.checkpoint_file import default_path
from ledger.book.wall_clock import ClockWatch, unix_ms
from ledger.domain.outcomes import Code
from ledger.files.atomic_file import SHARED, create_file, replace_file
from ledger.store.engine import url_of
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate

PEOPLE: Final = {
    **{party.slug: Person(party.did) for party in PARTIES},
    "operator": Person("did:web:operator.localhost", ("OPERATOR",)),
}
"""The people of the development issuer, unless the profile names others: one of each party, and the operator."""
_KEPT_INSIDE: Final = "kept/checkpoint"
"""Where earlier versions kept the newest checkpoint: beside the book, so that an older copy of the folder held both."""


@contextmanager
def run_server(folder: DevelopmentFolder, service: socket.socket, issuer: socket.socket) -> Iterator[None]:
    """Serve a complete folder on two listening sockets while the block runs.

    The newest checkpoint is kept in the state folder of the user. Where none is kept, a line says so, and where the
    clock jumps; both stop a service in production.

    Raises:
        BookUnusable: as :meth:`ledger.book.book.Book.open` does.
        Malformed, OSError: of the folder's files.
    """
    log_key = load_private(folder.log_key)
    keys = FileKeyStore(folder.data_keys)
    (folder.data_keys / TDP.did).mkdir(mode=0o700, exist_ok=True)
    log = verifier_key(folder.log_key, folder.mark.origin)
    settings = IssuerSettings.load(folder.profile)
    known = structs.replace(settings, people=settings.people or PEOPLE).issuer(folder.path, folder.issuer, unix_ms)
    with ExitStack() as opened:
        opened.enter_context(serving(create_issuer_app(known), issuer))
        book = Book.open(
            url_of(folder.book),
            gate=gate,
            log_key=log_key,
            origin=folder.mark.origin,
            clock=unix_ms,
            watch=ClockWatch(pauses=False),
            kept=kept_outside(folder, log),
            first_start=True,
        )
        opened.callback(book.close)
        app = create_app(
            book,
            keys,
            url=folder.service,
            log=log,
            clock=unix_ms,
            issuers=IssuerFiles([(folder.issuer, folder.path / "issuer.jwks")]),
            secret=service_secret(log_key, folder.mark.origin),
        )
        opened.enter_context(serving(app, service))
        yield


def kept_outside(folder: DevelopmentFolder, log: LogKey) -> Path:
    """The file of the newest checkpoint, in the state folder; what an earlier version kept in the folder moves there.

    Raises:
        OSError: if it cannot be moved.
    """
    path, inside = default_path(log), folder.path / _KEPT_INSIDE
    if inside.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What is kept outside already is never replaced by what came with the folder.
        with suppress(FileExistsError):
            create_file(path, inside.read_bytes(), mode=SHARED)
    profile = folder.profile.read_text(encoding="utf-8")
    without = profile.replace(f'kept = "{_KEPT_INSIDE}"\n', "")
    if without != profile:
        replace_file(folder.profile, without.encode("utf-8"), mode=SHARED)
    # Last: if this is interrupted before, the profile names a file that is there.
    inside.unlink(missing_ok=True)
    return path


def register_parties(folder: DevelopmentFolder) -> None:
    """Register the folder's parties, the SRO first. Every start submits it, and the first one records it.

    Raises:
        Refused, Unreachable, Malformed, OSError.
    """
    profile = Profile.load(folder.profile_of(SRO))
    registrar = profile.signer()
    with profile.open() as service:
        for party in PARTIES:
            body = registration(Signer.load(folder.key(party.slug)), party.did, party.name, [party.role])
            service.submit(registrar, SRO.did, "organisation", body, f"up-{party.slug}")


def publish_policy(folder: DevelopmentFolder) -> None:
    """Publish the development policy, unless its domain has one. Raises: Refused, Unreachable, Malformed, OSError."""
    profile = Profile.load(folder.profile_of(SRO))
    signer = profile.signer()
    with profile.open() as service:
        try:
            service.policy(DOMAIN)
        except Refused as refused:
            if refused.code != Code.NOT_FOUND.word:
                raise
        else:
            return
        write_policy(folder, unix_ms() // 1000 * 1000)
        stored = service.put_document(signer, read_document(folder.path / POLICY))
        body: c.Object = {"document": stored.document, "signatures": [stored.signature]}
        service.submit(signer, SRO.did, "policy", body, replaces=stored.replaces)
