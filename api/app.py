"""The application: routes over one book. Routes parse, call and render; the book alone decides."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import RedirectResponse, Response
from starlette.routing import Route

from api.auth.access_tokens import Issuer, Tokens
from api.auth.authentication import Authenticator
from api.auth.bad_signatures import BadSignatures
from api.auth.caller_quotas import CallerLimits, CallerQuotas
from api.auth.signed_request import Binding
from api.auth.stored_documents import ReadDocuments
from api.console.app import Console
from api.console.frame.addresses import ROOT
from api.console.session.login import LoginTerms
from api.http import problems
from api.http.body import check_query
from api.http.grouped_reads import GroupedReads
from api.http.pagination import Cursors
from api.http.snapshots import SnapshotProvider
from api.keys.data_key_store import KeyStore
from api.keys.key_release import KeyReleases
from api.keys.nonces import Challenges
from api.keys.watermark_keys import WatermarkKeys
from api.middleware.metrics import Metrics
from api.middleware.request_limits_and_log import Requests
from api.routes import accounts, lineage, planning, registry
from api.routes import log as log_routes
from api.routes.docs_page import docs_router
from api.routes.events import Streams, event_router
from api.routes.health import health_router
from api.routes.models.model_keys import model_key_router
from api.routes.models.watermarks import watermark_router
from api.routes.overviews import (
    account_histories,
    contract_proposals,
    decision_checks,
    inbox,
    lineage_graph,
    newest_entries,
    register,
)
from api.routes.progress import Progress, progress_router
from api.routes.proposed_contracts import Proposals
from api.routes.read_routes import ReadContext
from api.routes.submissions.batch import batch_router
from api.routes.submissions.challenges import challenge_router
from api.routes.submissions.commands import command_router
from api.routes.submissions.direct_commands import DirectCommands
from api.routes.submissions.documents import document_router
from api.routes.submissions.proposals import proposal_router
from api.wire.openapi_document import openapi_document
from client.http.base_url import base_of
from ledger.book.book import Book
from ledger.verifier import LogKey

_OVERVIEWS: Final = (
    account_histories,
    contract_proposals,
    decision_checks,
    inbox,
    lineage_graph,
    newest_entries,
    register,
)


def create_app(  # noqa: PLR0913 - the parts of a service
    book: Book,
    key_store: KeyStore,
    *,
    url: str,
    log: LogKey,
    clock: Callable[[], int],
    issuers: Iterable[Issuer] | Callable[[], Iterable[Issuer]],
    secret: bytes | None = None,
    quotas: CallerQuotas | None = None,
    console: LoginTerms | None = None,
) -> FastAPI:
    """The service over ``book``. Tokens for it name the log's origin as their audience.

    Args:
        book: open; its opener closes it.
        key_store: holds the data keys of its partitions.
        url: the service's public URL, which signatures name.
        issuers: trusted issuers of access tokens; those that a clean room signs itself are always trusted.
        log: the log's public key, as the service publishes it.
        clock: Unix time in milliseconds, the book's own.
        secret: the same in every process that serves the book, for what one gives out and another takes: cursors of
            lists, challenges and the console's cookies; fresh by default.
        quotas: of organisations, clean rooms and addresses; the usual ones by default.
        console: how issuers know the console; its usual name by default.

    Raises:
        Malformed: if ``url`` is not a URL.
    """
    binding, quotas = Binding(url, clock), quotas or CallerQuotas()
    trusted = issuers if callable(issuers) else _always(tuple(issuers))
    tokens = Tokens(trusted, log.origin, clock)
    book.meter_pricing(quotas.count_pricing, quotas.pricing_wait_s)
    authenticator = Authenticator(book, tokens, quotas)
    app = _empty_app(authenticator)
    secret = secret or secrets.token_bytes(32)
    cursors, challenges = Cursors(_derived(secret, b"cursors")), Challenges(_derived(secret, b"challenges"), clock)
    base, snapshots, progress = base_of(url, "url"), SnapshotProvider(book, clock), Progress(clock)
    proposals, documents = Proposals(base, clock, quotas.count_pricing), ReadDocuments(quotas)
    context = ReadContext(snapshots, cursors, key_store, progress, log, book.stated_tree, quotas, proposals, documents)
    streams = Streams(quotas.terms.share(quotas.terms.streams))
    metrics, marks = Metrics(partial(_size, book), partial(len, streams)), WatermarkKeys(key_store, log.origin)
    limits = CallerLimits(BadSignatures(metrics.bad_signatures.inc), quotas)
    commands = _command_routers(book, key_store, binding, challenges, limits, marks)
    for router in (
        *commands,
        *_read_routers(context, streams, metrics),
        watermark_router(book, marks, quotas),
        proposal_router(context, binding, limits),
    ):
        app.include_router(router)
    # Built at the first request for it, once: it takes half a second.
    document = cache(partial(openapi_document, app))
    app.include_router(docs_router(document))
    key, terms = _derived(secret, b"console"), console or LoginTerms()
    pages = Console(context, tokens, trusted, clock, streams, url=base, key=key, terms=terms)
    _mount(app, pages, urlsplit(base).path)
    app.add_middleware(DirectCommands, routes=commands[0].routes, authenticator=authenticator)
    app.add_middleware(Requests, metrics=metrics, quotas=quotas, respond=pages.respond)
    return app


def _empty_app(authenticator: Authenticator) -> FastAPI:
    """An application without routes, whose every route requires its token and refuses an unknown query parameter."""
    app = FastAPI(
        title="Epsilon Ledger",
        version="1",
        summary="Privacy budgets, charged, settled and proven",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        default_response_class=Response,
        redirect_slashes=False,
        # Its telemetry would send messages of errors, which may quote a request, to whom the environment names.
        telemetry={"auto_configure": False, "logs": False, "metrics": False, "tracing": False},
        dependencies=[Depends(authenticator), Depends(check_query)],
    )
    problems.install(app)
    return app


def _mount(app: FastAPI, console: Console, path: str) -> None:
    """The console's pages beside the API's routes, and the way to them from the service's own address."""
    home = f"{path}{ROOT}/"
    for start in ("/", ROOT):
        app.router.routes.append(Route(start, lambda _: RedirectResponse(home, 307), methods=["GET"]))
    app.mount(ROOT, console)


def _always(issuers: tuple[Issuer, ...]) -> Callable[[], tuple[Issuer, ...]]:
    return lambda: issuers


def _read_routers(context: ReadContext, streams: Streams, metrics: Metrics) -> Iterator[APIRouter]:
    for reads in (log_routes, registry, accounts, lineage, planning, *_OVERVIEWS):
        yield reads.ROUTES.router(context)
    yield progress_router(context.snapshots, context.progress)
    yield event_router(context.snapshots, streams)
    yield health_router(context.snapshots, metrics)


def _command_routers(  # noqa: PLR0913, PLR0917 - the parts of a service that commands need
    book: Book,
    store: KeyStore,
    binding: Binding,
    challenges: Challenges,
    limits: CallerLimits,
    marks: WatermarkKeys,
) -> tuple[APIRouter, ...]:
    reads = GroupedReads(book)
    return (
        command_router(book, reads, KeyReleases(book, store, challenges), binding, limits, marks),
        batch_router(book, reads, binding, limits),
        challenge_router(book, challenges),
        model_key_router(book, store, binding, limits.signatures),
        document_router(book, binding, limits),
    )


def _derived(secret: bytes, use: bytes) -> bytes:
    """A key of its own for each use (RFC 5869, the step of expansion)."""
    return hmac.digest(secret, use + b"\x01", "sha256")


def _size(book: Book) -> int:
    with book.read() as facts:
        return facts.size
