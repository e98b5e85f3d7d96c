"""The console's own application, below ``/console``: it dispatches, renders, and turns every error into a page.

It is mounted beside the API's routes, so that neither their wire forms nor their table of access know of it.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Final
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from api.auth.access_tokens import Issuer, Tokens
from api.auth.authentication import caller_of_token
from api.auth.authorisation import Caller
from api.console.frame import headers
from api.console.frame.addresses import ROOT, address, local_path, served_below, service_path
from api.console.frame.assets import read_asset
from api.console.frame.pages import ConsolePage, Inputs, Page
from api.console.frame.problem_pages import ProblemPage
from api.console.frame.reader import Reader
from api.console.frame.tables import CSV_TYPE
from api.console.frame.templates import render
from api.console.session.form_body import FIELDS_MAX, form_of
from api.console.session.login import LOGIN, SESSION, Logins, LoginTerms
from api.console.session.sealed_cookies import SealedCookies
from api.console.session.session import Session, form_token, is_form_token
from api.console.view_list import NAVIGATION, PAGES
from api.console.views.live.run_streams import RunStreams
from api.http.problems import Problem
from api.routes.events import Streams
from api.routes.read_routes import ReadContext, View
from api.routes.search_budget import SearchBudget
from ledger.store.snapshot import Snapshot

ANYONE: Final = Caller("", ())
_HTML: Final = "text/html; charset=utf-8"
_SAME_SITE: Final = frozenset({"", "none", "same-origin"})
"""What a browser says of where a form came from (Fetch Metadata), or says nothing."""
_LOGINS: Final = frozenset({"login", "callback"})
"""Routes that count as anonymous with a session, too: they ask an issuer."""
Endpoint = Callable[[Request], Awaitable[Response]]


class ConsoleRoute(Route):
    """A route with the name that metrics and logs know it by."""

    operation_id: str


class Console:
    """The pages over one book."""

    def __init__(  # noqa: PLR0913 - the parts of a console
        self,
        context: ReadContext,
        tokens: Tokens,
        issuers: Callable[[], Iterable[Issuer]],
        clock: Callable[[], int],
        streams: Streams,
        *,
        url: str,
        key: bytes,
        terms: LoginTerms,
    ) -> None:
        """Read through ``context`` with the rights of the person who logged in.

        Args:
            tokens: verifies what an issuer gives out.
            clock: Unix milliseconds.
            streams: counts the open event streams of the service.
            url: the service's own, where the issuers send people back to.
            key: 32 bytes, the same in every process that serves the book.
            terms: how the issuers know the console.
        """
        self._context, self._url = context, url
        self._origin, self._path = "{0.scheme}://{0.netloc}".format(urlsplit(url)), urlsplit(url).path
        self._streams = RunStreams(context, streams, clock)
        self._form_key = hmac.digest(key, b"forms\x01", "sha256")
        self._cookies = SealedCookies(hmac.digest(key, b"cookies\x01", "sha256"), secure=url.startswith("https:"))
        self._logins = Logins(tokens, issuers, self._cookies, clock, url=url, audience=context.log.origin, terms=terms)
        self._router = Router(
            [
                self._route("/static/{name}", "static", self._static),
                self._route("/login", "login", _in_thread(self._begin)),
                self._route("/callback", "callback", _in_thread(self._finish)),
                self._route("/logout", "logout", self._logout, "POST"),
                self._route("/runs/{id}/frames", "run_frames", _in_thread(self._frames)),
                *(self._page_route(page) for page in PAGES),
            ],
            redirect_slashes=False,
            default=self._missing,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; an error is a page, too."""
        with served_below(self._path):
            try:
                await self._router(scope, receive, send)
            except Exception as error:  # noqa: BLE001 - whatever it was, people get a page
                await self._failed(Request(scope, receive), error)(scope, receive, send)

    def _route(self, path: str, name: str, endpoint: Endpoint, *methods: str) -> ConsoleRoute:
        async def guarded(request: Request) -> Response:
            # Here, because the framework hands what a route raises to the API's handlers, which answer in JSON.
            try:
                if name in _LOGINS or self._session(request) is None:
                    self._context.quotas.admit_anonymous(request.scope)
                return await endpoint(request)
            except Exception as error:  # noqa: BLE001 - whatever it was, people get a page
                return self._failed(request, error)

        route = ConsoleRoute(path, guarded, methods=[*(methods or ("GET",))], name=name)
        route.operation_id = f"console_{name}"
        return route

    def _page_route(self, page: ConsolePage) -> ConsoleRoute:
        async def endpoint(request: Request) -> Response:
            session = self._session(request)
            # A form is a session's: without one it is not read, and the page says what is missing.
            form = await form_of(request) if request.method == "POST" and session is not None else {}
            person = ANYONE if session is None else Caller(session.token.organisation, ())
            # What is slow has a place of another kind.
            async with nullcontext() if page.slow else self._context.quotas.reading(person, request.scope):
                return await run_sync(self._page, page, request, form)

        methods = ("GET", "POST") if page.form else ("GET",)
        return self._route(page.path, page.show.__name__, endpoint, *methods)

    def _page(self, page: ConsolePage, request: Request, form: Mapping[str, str]) -> Response:
        session = self._session(request)
        if session is None and not page.public:
            if self._cookies.is_sent(SESSION, _cookies(request)):
                raise ProblemPage.session_ended()
            return _redirect(address("login", next=_here(request)))
        if form or request.method == "POST":
            self._check_form(request, session, form)
        inputs = Inputs(dict(request.path_params), dict(request.query_params), form)
        snapshots, organisation = self._context.snapshots, "" if session is None else session.token.organisation
        with snapshots.read_long(organisation) if page.slow else snapshots.read() as facts:
            caller = ANYONE if session is None else caller_of_token(session.token, facts)
            request.state.caller = caller if session is not None else None
            if not page.is_for(caller):
                for need in page.needs:
                    caller.check(need)
            reader = Reader(
                View(facts, caller, self._context, None, None, SearchBudget(request, caller, self._context.quotas))
            )
            shown = self._shown(page, reader, inputs)
            return self._rendered(request, shown, facts, session, caller)

    def _shown(self, page: ConsolePage, reader: Reader, inputs: Inputs) -> Page:
        """What the view answers, counted in the caller's quotas."""
        quotas, caller = self._context.quotas, reader.caller
        if inputs.form:
            quotas.admit_questions(caller)
        if not page.slow:
            return page.show(reader, inputs)
        quotas.check_pricing(caller)
        with quotas.metered(caller):
            return page.show(reader, inputs)

    def _rendered(
        self, request: Request, shown: Page, facts: object, session: Session | None, caller: Caller
    ) -> Response:
        if shown.body is not None:
            data, kind = shown.body
            return Response(data, headers=headers.PAGE, media_type=kind)
        named = request.query_params.get("csv")
        if named is not None:
            table = next((shown_table for shown_table in shown.tables if shown_table.name == named), None)
            if table is None:
                raise HTTPException(404)
            disposition = {"content-disposition": f'attachment; filename="{table.name}.csv"'}
            return Response(table.to_csv(), headers={**headers.PAGE, **disposition}, media_type=CSV_TYPE)
        assert isinstance(facts, Snapshot)
        values = {
            **shown.values,
            "tables": {shown_table.name: shown_table for shown_table in shown.tables},
            "title": shown.title,
            "size": facts.size,
            "now": self._context.snapshots.time(facts),
        }
        return Response(self._html(request, shown.template, session, caller, values), 200, headers.PAGE, _HTML)

    def _html(
        self, request: Request, template: str, session: Session | None, caller: Caller, values: Mapping[str, object]
    ) -> bytes:
        """A template with what every page has."""
        return render(
            template,
            **values,
            caller=caller,
            roles=caller.roles,
            session=session,
            form_token="" if session is None else form_token(self._form_key, session.id),
            navigation=[link for link in NAVIGATION if link.is_for(caller)],
            here=service_path(request.url.path),
            query=dict(request.query_params),
            origin=self._context.log.origin,
        )

    async def _missing(self, scope: Scope, receive: Receive, _send: Send) -> None:
        if self._session(Request(scope, receive)) is None:
            self._context.quotas.admit_anonymous(scope)
        raise HTTPException(404)

    def _failed(self, request: Request, error: Exception) -> Response:
        """What a page raised, as a page; with the time to retry after, where the error has one."""
        page = self._problem(request, ProblemPage.of_error(request, error))
        if isinstance(error, Problem) and "retry-after" in (answer := error.response()).headers:
            page.headers["retry-after"] = answer.headers["retry-after"]
        return page

    def _problem(self, request: Request, problem: ProblemPage) -> Response:
        session = self._session(request)
        following = _here(request) if request.method == "GET" else address()
        values = {"problem": problem, "title": problem.title, "following": following}
        page = self._html(request, "problem.html", session, ANYONE, values)
        response = Response(page, problem.status, headers.PAGE, _HTML)
        if session is None and self._cookies.is_sent(SESSION, _cookies(request)):
            response.headers.append("set-cookie", self._cookies.set(SESSION, "", 0))
        return response

    def respond(self, problem: Problem, scope: Scope) -> Response:
        """A problem of the service itself, as when it is busy: a page for a page, and JSON for the API."""
        answer = problem.response()
        if not scope["path"].startswith(f"{ROOT}/"):
            return answer
        with served_below(self._path):
            page = self._problem(Request(scope), ProblemPage.of_problem(problem))
        page.headers.update({name: answer.headers[name] for name in ("retry-after",) if name in answer.headers})
        return page

    def _session(self, request: Request) -> Session | None:
        return self._logins.session(_cookies(request))

    def _check_form(self, request: Request, session: Session | None, form: Mapping[str, str]) -> None:
        """Hold a form to its session and to this site. Raises: ProblemPage."""
        site, origin = request.headers.get("sec-fetch-site", ""), request.headers.get("origin", self._origin)
        own = session is not None and is_form_token(self._form_key, session.id, form.get("form_token", ""))
        if not own or site not in _SAME_SITE or origin != self._origin:
            detail = "The form came from another place, or from a session that has ended: open the page again."
            raise ProblemPage(403, "foreign_form", "This form is not from this page", detail)

    async def _static(self, request: Request) -> Response:
        asset = read_asset(request.path_params["name"])
        if asset is None:
            raise HTTPException(404)
        return Response(asset[0], headers=headers.ASSET, media_type=asset[1])

    def _frames(self, request: Request) -> Response:
        if (session := self._session(request)) is None:
            raise ProblemPage.session_ended()
        return self._streams.open(request, session)

    def _begin(self, request: Request) -> Response:
        issuer, following = request.query_params.get("issuer"), local_path(request.query_params.get("next", ""))
        if issuer is None:
            values = {"title": "Log in", "issuers": self._logins.issuers, "following": following}
            page = self._html(request, "login.html", self._session(request), ANYONE, values)
            return Response(page, 200, headers.PAGE, _HTML)
        begun = self._logins.begin(issuer, following)
        return _redirect(begun.location, begun.cookie)

    def _finish(self, request: Request) -> Response:
        pairs = request.query_params.multi_items()
        # A repeated parameter is invalid (RFC 6749, section 3.1).
        answer = dict(pairs) if len({name for name, _ in pairs}) == len(pairs) <= FIELDS_MAX else {}
        finished = self._logins.finish(answer, _cookies(request))
        return _redirect(finished.location, *finished.cookies)

    async def _logout(self, request: Request) -> Response:
        session = self._session(request)
        if session is not None:
            self._check_form(request, session, await form_of(request))
        return _redirect(address("login"), *(self._cookies.set(name, "", 0) for name in (SESSION, LOGIN)))


def _in_thread(endpoint: Callable[[Request], Response]) -> Endpoint:
    async def run(request: Request) -> Response:
        return await run_sync(endpoint, request)

    return run


def _redirect(location: str, *cookies: str) -> Response:
    response = RedirectResponse(location, 303, headers.PAGE)
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response


def _cookies(request: Request) -> str:
    return "; ".join(request.headers.getlist("cookie"))


def _here(request: Request) -> str:
    """The requested page, with its query."""
    return service_path(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
