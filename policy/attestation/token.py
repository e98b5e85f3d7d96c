"""The evidence of a clean room: an attestation token, read into one form whatever service made it.

*eat*: an EAT (RFC 9711) as a JWT, signed with Ed25519; what the development attester makes.

    {"alg":"Ed25519","typ":"eat+jwt"} . {"iss":"...","iat":1767225600,"exp":1767226200,"eat_nonce":"...",
     "dbgstat":"disabled-since-boot","swname":"...","charge":"run-1","plan":"<sha256>",
     "cnf":{"signing":{JWK},"sealing":{JWK}}} . signature

*azure*: a token of Microsoft Azure Attestation, signed with RS256. What the clean room states of itself is runtime
data, which the hardware's report binds by its hash: ``x-ms-runtime`` holds ``charge``, ``nonce``, ``plan`` and two
``keys`` whose ``kid`` is ``signing`` and ``sealing``. Claims of the hardware lie flat for a confidential container
and under ``x-ms-isolation-tee`` for a confidential virtual machine, whose runtime data come as ``client-payload``:
one member ``epsilon-ledger``, the base64 of that very object.

Only pinned keys verify a token: ``kid`` and ``jku`` pick nothing, and no address is ever followed.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

TOKEN_BYTES_MAX: Final = 16_384
NESTED: Final = "x-ms-isolation-tee"
_RUNTIME: Final = "x-ms-runtime"
_PAYLOAD: Final = "client-payload"
_OURS: Final = "epsilon-ledger"
_DEBUGGABLE: Final = "x-ms-sevsnpvm-is-debuggable"
_TYPE: Final = "x-ms-attestation-type"
VMPL: Final = "x-ms-sevsnpvm-vmpl"
_HEADERS: Final = {
    "eat": (("alg", "typ"), ("kid",), "Ed25519", "eat+jwt"),
    "azure": (("alg", "typ"), ("jku", "kid"), "RS256", "JWT"),
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The claims of a token, under the names of EAT; a missing claim is None.

    Attributes:
        form: ``eat`` or ``azure``.
        text: the compact JWS.
        claims: all of them, as the token spells them.
        debuggable: False only if the token claims that no debugger can attach.
        hardware: the kind of hardware, as Azure's ``x-ms-attestation-type``; None for EAT.
        vmpl: the privilege level in a virtual machine that requested the report, 0 for the highest; None for EAT.
        bound: what the clean room states of itself: ``charge``, ``nonce``, ``plan``, ``cnf``, maybe ``pipeline``.
    """

    form: str
    text: str
    claims: c.Object
    debuggable: bool
    hardware: c.Json
    vmpl: c.Json
    bound: c.Object

    @classmethod
    def parse(cls, token: bytes | None) -> Evidence:
        """Read a token of at most 16 KiB; nothing of it is verified yet. Raises: Malformed."""
        if token is None:
            raise Malformed("evidence", "is not stored")
        if len(token) > TOKEN_BYTES_MAX or not token.isascii():
            raise Malformed("evidence", f"must be ASCII text of at most {TOKEN_BYTES_MAX} bytes")
        text = token.decode("ascii")
        parts = text.split(".")
        if len(parts) != 3:
            raise Malformed("evidence", "must be a compact JWS: header, claims and signature between dots")
        header, payload, _ = (c.unbase64url(part, "evidence") for part in parts)
        form = _form(c.parse(header, TOKEN_BYTES_MAX, "header"))
        claims = c.parse(payload, TOKEN_BYTES_MAX, "claims")
        if not isinstance(claims, dict):
            raise Malformed("claims", "must be an object")
        if form == "eat":
            return cls(form, text, claims, claims.get("dbgstat") != "disabled-since-boot", None, None, _of_eat(claims))
        claimed, bound = _hardware(claims), _of_azure(claims)
        debuggable = claimed.get(_DEBUGGABLE) is not False
        return cls(form, text, claims, debuggable, claimed.get(_TYPE), claimed.get(VMPL), bound)


def _form(header: c.Json) -> str:
    claimed = header.get("alg") if isinstance(header, dict) else None
    for form, (required, optional, algorithm, kind) in _HEADERS.items():
        if claimed == algorithm:
            members = c.fields(header, "header", required, optional)
            if members["typ"] != kind:
                raise Malformed("header.typ", f"must be '{kind}' beside alg '{algorithm}'")
            return form
    raise Malformed("header", "must say alg 'Ed25519' and typ 'eat+jwt', or alg 'RS256' and typ 'JWT'")


def _of_eat(claims: c.Object) -> c.Object:
    claimed = {"charge": "charge", "cnf": "cnf", "nonce": "eat_nonce", "pipeline": "pipeline", "plan": "plan"}
    return {ours: claims[name] for ours, name in claimed.items() if name in claims}


def _hardware(claims: c.Object) -> c.Object:
    """The hardware's claims: flat for a container, nested for a virtual machine, whose flat claims do not count."""
    nested = claims.get(NESTED)
    return nested if isinstance(nested, dict) else {} if NESTED in claims else claims


def _of_azure(claims: c.Object) -> c.Object:
    """Raises: Malformed, if the runtime data cannot be read."""
    runtime = claims.get(_RUNTIME)
    if not isinstance(runtime, dict):
        return {}
    if NESTED in claims:
        runtime = _decode_payload(runtime.get(_PAYLOAD))
    claimed: c.Object = {name: runtime[name] for name in ("charge", "nonce", "pipeline", "plan") if name in runtime}
    keys = runtime.get("keys")
    if isinstance(keys, list):
        # One key of each name and no third: of two with one name another reader might use the other.
        by_id = [(str(key["kid"]), key) for key in keys if isinstance(key, dict) and "kid" in key]
        if len(keys) == len(by_id) and sorted(name for name, _ in by_id) == ["sealing", "signing"]:
            claimed["cnf"] = {name: {field: key[field] for field in key if field != "kid"} for name, key in by_id}
    return claimed


def _decode_payload(payload: c.Json) -> c.Object:
    text = payload.get(_OURS) if isinstance(payload, dict) else None
    if not isinstance(text, str):
        raise Malformed(f"claims.{_RUNTIME}.{_PAYLOAD}.{_OURS}", "must be base64 text")
    try:
        raw = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise Malformed(f"claims.{_RUNTIME}.{_PAYLOAD}.{_OURS}", "is not base64") from None
    value = c.parse(raw, TOKEN_BYTES_MAX, _OURS)
    if not isinstance(value, dict):
        raise Malformed(f"claims.{_RUNTIME}.{_PAYLOAD}.{_OURS}", "must hold an object")
    return value
