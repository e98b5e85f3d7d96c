"""The service and the issuer of a development folder in one process, and what its book holds before they are used."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from api.app import create_app
from api.auth.jwks_files import IssuerFiles
from api.dev_issuer.issuer import IssuerSettings
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
from ledger.book.wall_clock import unix_ms
from ledger.domain.outcomes import Code
from ledger.store.engine import url_of
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate


@contextmanager
def running(folder: DevelopmentFolder, service: socket.socket, issuer: socket.socket) -> Iterator[None]:
    """Serve a complete folder on two listening sockets while the block runs.

    Raises:
        BookUnusable: as :meth:`ledger.book.book.Book.open` does.
        Malformed, OSError: of the folder's files.
    """
    log_key = load_private(folder.key("log"))
    keys = FileKeyStore(folder.data_keys)
    (folder.data_keys / TDP.did).mkdir(mode=0o700, exist_ok=True)
    known = IssuerSettings.load(folder.profile).issuer(folder.path, folder.issuer, unix_ms)
    with ExitStack() as opened:
        opened.enter_context(serving(create_issuer_app(known), issuer))
        (folder.path / "kept").mkdir(mode=0o700, exist_ok=True)
        book = Book.open(
            url_of(folder.book),
            gate=gate,
            log_key=log_key,
            origin=folder.mark.origin,
            clock=unix_ms,
            kept=folder.path / "kept" / "checkpoint",
        )
        opened.callback(book.close)
        app = create_app(
            book,
            keys,
            url=folder.service,
            log=verifier_key(folder.key("log"), folder.mark.origin),
            clock=unix_ms,
            issuers=IssuerFiles([(folder.issuer, folder.path / "issuer.jwks")]),
            secret=service_secret(log_key, folder.mark.origin),
        )
        opened.enter_context(serving(app, service))
        yield


def register_parties(folder: DevelopmentFolder) -> None:
    """Register the folder's parties, the SRO first. Every start asks it, and the first one records it.

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
