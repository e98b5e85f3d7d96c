"""Keys of sealed models: the clean room that trained deposits them; only the entry of an opening releases them."""

from __future__ import annotations

import logging
from typing import Annotated, Final, Literal

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.bad_signatures import BadSignatures
from api.auth.signed_request import Binding
from api.http.body import SIGNATURE_PARAMETER, Raw, Signature
from api.http.field_types import Digest, KeyBytes
from api.http.problems import Problem, ServiceCode
from api.keys.data_key_store import KeyStore, KeyUnavailable
from api.wire.responses import json_response, shows, takes
from client.http.endpoints import MODEL_KEYS, SIGNATURE_HEADER
from ledger.book.book import Book
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name, Sha256, pattern
from ledger.wire.records import Record, convert

DEPOSIT_BYTES_MAX: Final = 4_096
_LOG: Final = logging.getLogger("api.model_keys")


class DepositKey(Record, frozen=True):
    """A public key as a JWK (RFC 8037)."""

    crv: Literal["X25519"]
    kty: Literal["OKP"]
    x: KeyBytes


class ModelKeyDeposit(Record, frozen=True):
    """The key of a sealed model, sealed with HPKE to the deposit key."""

    charge: Name
    model: Sha256
    sealed: Annotated[str, pattern("[A-Za-z0-9_-]+", "must be base64url", longest=1_000)]


class Deposited(Record, frozen=True):
    """The key of a sealed model is stored."""

    charge: Name
    model: Digest


def model_key_router(book: Book, store: KeyStore, binding: Binding, signatures: BadSignatures) -> APIRouter:
    """GET /v1/deposit-key and POST /v1/model-keys."""
    router = APIRouter(tags=["key release"])

    @router.get("/v1/deposit-key", operation_id="read_deposit_key", responses=shows(DepositKey, 401, 403, 404, 503))
    def read() -> Response:
        return json_response(DepositKey(crv="X25519", kty="OKP", x=_deposit_key(store)))

    @router.post(
        MODEL_KEYS,
        operation_id="deposit_model_key",
        responses=shows(Deposited, 401, 403, 404, 408, 413, 415, 422, 429, description="Stored"),
        openapi_extra=takes(ModelKeyDeposit, parameters=[SIGNATURE_PARAMETER]),
    )
    def deposit(raw: Raw, jws: Signature, caller: Calling) -> Response:
        parsed = convert(ModelKeyDeposit, c.parse(raw, DEPOSIT_BYTES_MAX))
        charge, model, sealed = parsed.charge, parsed.model, parsed.sealed
        c.unbase64url(sealed, "sealed")
        if charge != caller.charge:
            raise Problem(Code.NOT_FOUND, f"there is no charge {charge}", field="charge")
        binding.check(jws, "POST", MODEL_KEYS, model)
        with signatures.counted(caller), book.read() as facts:
            if binding.registered_key(facts, jws, raw).key_id != facts.charges[charge].key_id:
                # A thief of the clean room's token alone could replace the model's key by one of its own, and so could
                # a clean room that opens the model.
                detail = f"the clean room of charge {charge} must sign it"
                raise Problem(Code.SIGNATURE_INVALID, detail, field=SIGNATURE_HEADER)
        _deposit_key(store)
        try:
            # Sealed to the store and bound to charge and model: a carrier can neither read nor misplace it.
            store.deposit_model_key(charge, model, sealed)
        except KeyUnavailable as error:
            raise _failed(error) from None
        return json_response(Deposited(charge=charge, model=model))

    return router


def _deposit_key(store: KeyStore) -> str:
    """Raises: Problem, where the service takes no keys, or not now."""
    try:
        if (key := store.deposit) is not None:
            return key
    except KeyUnavailable as error:
        raise _failed(error) from None
    raise Problem(Code.NOT_FOUND, "this service stores no keys: seal the model to the provider's own store")


def _failed(error: KeyUnavailable) -> Problem:
    _LOG.warning("the key store failed", extra={"reason": str(error)})
    return Problem(ServiceCode.KEY_STORE, str(error))
