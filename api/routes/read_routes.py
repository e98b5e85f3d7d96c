"""Routes that record nothing, made of functions: each answers from a view of the book; the route reads and renders.

    ROUTES = ReadRoutes("registry")

    @ROUTES.route("/v1/policies/{domain}", as_of=True)
    def read_policy(view: View, domain: PathName) -> answers.PolicyVersions: ...

The function's name is the operation's id, its further parameters are those of the path and the query, and the type
that it returns is the answer of the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any, Final, NamedTuple, TypeVar

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.authorisation import PUBLIC, Caller
from api.auth.caller_quotas import CallerQuotas
from api.auth.stored_documents import ReadDocuments
from api.http.etags import tagged_response
from api.http.pagination import Cursors, Fetch, K, Page, PageRequest, Paging, T, V
from api.http.query_parameters import AsOf
from api.http.snapshots import SnapshotProvider
from api.keys.data_key_store import KeyStore
from api.routes.progress import Progress
from api.routes.proposed_contracts import Proposals
from api.routes.search_budget import SearchBudget
from api.wire.responses import Responses, json_response, shows, shows_page, shows_tagged
from ledger.book.past_snapshot import PastSnapshot
from ledger.book.state.state_statements import StatedTree
from ledger.domain.facts import Facts
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey
from ledger.wire.records import Record

F = TypeVar("F", bound=Callable[..., Any])
PROBLEMS: Final = (401, 403, 404, 422)
LISTED: Final = (401, 403, 422)
"""Problems of a list without parameters of its own."""


class ReadContext(NamedTuple):
    """What the routes of one service read from."""

    snapshots: SnapshotProvider
    cursors: Cursors
    key_store: KeyStore
    progress: Progress
    log: LogKey
    stated: Callable[[int], StatedTree | None]
    quotas: CallerQuotas
    proposals: Proposals
    documents: ReadDocuments


class View(NamedTuple):
    """The book as one caller reads it: now, or at the size ``as_of``; ``paging`` is of a list alone.

    A search calls ``proceed`` before each step, which raises Problem if the search has to end.

    The caller of a public operation is no one: it has no organisation, and no role.
    """

    facts: Snapshot | PastSnapshot
    caller: Caller
    context: ReadContext
    as_of: int | None
    paging: PageRequest | None
    proceed: Callable[[], None] = lambda: None

    @property
    def time(self) -> int:
        """The time of the snapshot (ms)."""
        return self.context.snapshots.time(self.facts)

    def page(
        self,
        scope: str,
        fetch: Fetch[K, V],
        show: Callable[[V], T | None],
        sees: Callable[[V, Facts], bool] = lambda *_: True,
    ) -> Page[T]:
        """One page of the list ``scope``, of what ``sees`` lets the caller see. Raises: Malformed."""
        assert self.paging is not None

        def shown(value: V) -> T | None:
            return show(value) if sees(value, self.facts) else None

        return self.context.cursors.page(scope, self.paging, fetch, shown)


class ReadRoutes:
    """The routes of one tag, collected from the functions of a module."""

    def __init__(self, tag: str) -> None:
        """``tag`` groups them in the OpenAPI document."""
        self._tag = tag
        self._adders: list[Callable[[APIRouter, ReadContext], None]] = []

    def route(  # noqa: PLR0913 - what differs between routes
        self,
        path: str,
        problems: tuple[int, ...] = PROBLEMS,
        *,
        as_of: bool = False,
        paged: bool = False,
        slow: bool = False,
        content: Responses | None = None,
        takes: dict[str, Any] | None = None,
    ) -> Callable[[F], F]:
        """A route that answers with what the function returns, under an entity tag unless it is paged or slow.

        What takes a body is a question, and what is slow, reads the past or searches it is metered: the caller's quotas
        count them.

        ``as_of``: past states can be read, too; ``slow``: it takes seconds of a processor. A function that makes its
        response itself says what its ``content`` is. What ``takes`` a body is a POST, else it is a GET.
        """
        tagged = not (paged or slow)

        def add(read: F) -> F:
            name, signature_ = read.__name__, signature(read, eval_str=True)
            own = [
                parameter.replace(kind=Parameter.KEYWORD_ONLY)
                for parameter in signature_.parameters.values()
                if parameter.name != "view"
            ]
            absent = {"caller": name in PUBLIC, "paging": not paged, "as_of": not as_of}
            given = [parameter for field, parameter in _GIVEN.items() if not absent.get(field)]
            shown = shows_page if paged else shows_tagged if tagged else shows
            responses = content or shown(signature_.return_annotation, *problems)

            def add_to(router: APIRouter, context: ReadContext) -> None:
                counted = _within_quotas(
                    _endpoint(read, context, slow=slow, tagged=tagged), context.quotas, takes, slow=slow
                )
                # `inspect` reads its signature here (PEP 362); the type of a function does not declare the attribute.
                endpoint: Any = counted
                endpoint.__signature__ = Signature([*own, *given], return_annotation=Response)
                methods = ["GET" if takes is None else "POST"]
                router.add_api_route(
                    path,
                    endpoint,
                    methods=methods,
                    operation_id=name,
                    name=name,
                    responses=responses,
                    openapi_extra=takes,
                )

            self._adders.append(add_to)
            return read

        return add

    def router(self, context: ReadContext) -> APIRouter:
        """The routes of one service."""
        router = APIRouter(tags=[self._tag])
        for add_to in self._adders:
            add_to(router, context)
        return router


def _given(*, request: Request, caller: Calling, paging: Paging, as_of: AsOf = None) -> None:
    """Declares the parameters that a route has beside its function's own."""


_ANONYMOUS: Final = Caller("", ())
_GIVEN: Final = signature(_given, eval_str=True).parameters


def _next_page(request: Request, page: Record) -> dict[str, str]:
    """The address of the next page as a link (RFC 8288), relative to the service; nothing where there is none."""
    cursor = getattr(page, "next_cursor", None)
    if cursor is None:
        return {}
    following = request.url.include_query_params(cursor=cursor)
    return {"link": f'<{following.path}?{following.query}>; rel="next"'}


def _within_quotas(
    endpoint: Callable[..., Response], quotas: CallerQuotas, takes: dict[str, Any] | None, *, slow: bool
) -> Callable[..., Awaitable[Response]]:
    """The endpoint within its caller's quotas, in a thread once its caller has a place."""

    def metered(caller: Caller, **parameters: Any) -> Response:  # noqa: ANN401 - as the endpoint's
        quotas.check_pricing(caller)
        with quotas.metered(caller):
            return endpoint(caller=caller, **parameters)

    async def within_quotas(
        request: Request,
        caller: Caller = _ANONYMOUS,
        **parameters: Any,  # noqa: ANN401 - as the endpoint's
    ) -> Response:
        if takes is not None:
            quotas.admit_questions(caller)
        # What is slow or of the past has a place of another kind. Entries since a time are searched through the log.
        has_place = slow or parameters.get("as_of") is not None
        answer = metered if has_place or parameters.get("since") is not None else endpoint
        async with nullcontext() if has_place else quotas.reading(caller, request.scope):
            return await run_sync(partial(answer, request=request, caller=caller, **parameters))

    return within_quotas


def _endpoint(
    read: Callable[..., Record | Response], context: ReadContext, *, slow: bool, tagged: bool
) -> Callable[..., Response]:
    def endpoint(
        request: Request,
        caller: Caller = _ANONYMOUS,
        paging: PageRequest | None = None,
        as_of: int | None = None,
        **parameters: Any,  # noqa: ANN401 - each has the type of its parameter
    ) -> Response:
        long = slow and as_of is None
        snapshots, organisation = context.snapshots, caller.organisation
        with snapshots.read_long(organisation) if long else snapshots.read(as_of, organisation) as facts:
            proceed = SearchBudget(request, caller, context.quotas)
            answer = read(View(facts, caller, context, as_of, paging, proceed), **parameters)
            if isinstance(answer, Response):
                return answer
            if tagged:
                return tagged_response(request, answer)
            return json_response(answer, headers=_next_page(request, answer))

    return endpoint
