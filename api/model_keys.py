"""Keys of sealed models: deposited by the clean room that trained, and handed over by nobody but an opening's entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from api.answering import json_response
from api.identity import Calling
from api.key_store import KeyUnavailable
from api.problems import Fault, Problem, declared
from api.reading import json_bytes
from client.paths import JSON_TYPE
from ledger import canonical as c
from ledger.outcomes import Code

if TYPE_CHECKING:
    from api.key_store import KeyStore

DEPOSIT_BYTES_MAX: Final = 4_096
_DEPOSIT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["charge", "model", "sealed"],
    "properties": {"charge": {"type": "string"}, "model": {"type": "string"}, "sealed": {"type": "string"}},
}


def model_key_router(store: KeyStore) -> APIRouter:
    """GET /v1/deposit-key and POST /v1/model-keys."""
    router = APIRouter(tags=["key release"])

    @router.get("/v1/deposit-key", operation_id="read_deposit_key", responses=declared(401, 403, 404))
    def read() -> Response:
        if store.deposit is None:
            raise Problem(Code.NOT_FOUND, "this service holds no keys: models are sealed to the provider's own store")
        return json_response({"crv": "X25519", "kty": "OKP", "x": store.deposit})

    @router.post(
        "/v1/model-keys",
        operation_id="deposit_model_key",
        responses=declared(401, 403, 404, 413, 415, 422, 503),
        openapi_extra={"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": _DEPOSIT}}}},
    )
    def deposit(raw: Annotated[bytes, Depends(json_bytes)], caller: Calling) -> Response:
        known = c.fields(c.parse(raw, DEPOSIT_BYTES_MAX), "", ("charge", "model", "sealed"))
        charge, model = c.name(known["charge"], "charge"), c.sha256(known["model"], "model")
        if charge != caller.charge:
            raise Problem(Code.NOT_FOUND, f"there is no charge {charge}", field="charge")
        try:
            # Sealed to the store and bound to charge and model: whoever carries it can neither read nor misplace it.
            store.deposit_model_key(charge, model, c.string(known["sealed"], "sealed"))
        except KeyUnavailable as fault:
            raise Problem(Fault.KEY_WITHHELD, str(fault)) from None
        return json_response({"charge": charge, "model": model})

    return router
