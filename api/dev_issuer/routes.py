"""The development issuer over HTTP: discovery, keys, a page to choose from, and tokens."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs, urlencode

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.dev_issuer.issuer import FORM_BYTES_MAX, NO_PERSON, DevelopmentIssuer, Refused
from ledger.wire import canonical_json as c


def create_issuer_app(issuer: DevelopmentIssuer) -> FastAPI:
    """The routes of one issuer."""
    app = FastAPI(title="Development issuer", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(Refused)
    def _refused(_request: Request, error: Refused) -> Response:
        status = 401 if error.error == "invalid_client" else 400
        return _json({"error": error.error, "error_description": str(error)}, status)

    @app.get("/.well-known/openid-configuration")
    def configuration() -> Response:
        return _json(
            {
                "authorization_endpoint": f"{issuer.url}/authorize",
                "authorization_response_iss_parameter_supported": True,
                "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["authorization_code", "client_credentials"],
                "id_token_signing_alg_values_supported": ["Ed25519"],
                "issuer": issuer.url,
                "jwks_uri": f"{issuer.url}/jwks",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "token_endpoint": f"{issuer.url}/token",
                "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
            }
        )

    @app.get("/jwks")
    def jwks() -> Response:
        return Response(issuer.jwks, media_type="application/jwk-set+json")

    @app.get("/authorize")
    def choose(request: Request) -> Response:
        if "person" in request.query_params:
            return RedirectResponse(issuer.authorize(dict(request.query_params)), 303)
        choices = {
            name: f"{name}, {person.organisation} {' '.join(person.roles)}" for name, person in issuer.people.items()
        }
        links = "".join(
            f'<li><a href="/authorize?{escape(urlencode({**dict(request.query_params), "person": name}))}">'
            f"{escape(text)}</a></li>"
            for name, text in {**choices, NO_PERSON: "none of these"}.items()
        )
        page = f"<!doctype html><title>Development issuer</title><h1>Who are you?</h1><ul>{links}</ul>"
        return HTMLResponse(page, headers={"content-security-policy": "default-src 'none'"})

    @app.post("/token")
    async def token(request: Request) -> Response:
        form = await _form(request)
        if form.get("grant_type") == "client_credentials":
            return _json(issuer.client_credentials(form))
        if form.get("grant_type") == "authorization_code":
            return _json(issuer.authorization_code(form))
        raise Refused("unsupported_grant_type", "grant_type must be client_credentials or authorization_code")

    return app


async def _form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise Refused("invalid_request", f"the form has more than {FORM_BYTES_MAX} bytes")
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise Refused("invalid_request", "the body must be a form") from None
    if any(len(values) != 1 for values in fields.values()):
        raise Refused("invalid_request", "a field is given twice")
    return {name: values[0] for name, values in fields.items()}


def _json(value: c.Object, status: int = 200) -> Response:
    return Response(c.dump(value), status, {"cache-control": "no-store"}, "application/json")
