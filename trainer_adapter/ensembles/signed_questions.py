"""A question as it is sent: signed by the consumer's key, its answer sealed to a key that the signature covers.

    POST /v1/questions      x-jws-signature: a detached JWS over these bytes, RFC 8785 JSON
    {"charge":"run-1","id":"question-1","inputs":"<base64url>","kind":"question","sealing":"<base64url>","v":1}

``inputs`` are one record's, little-endian, in the type and shape of the job's public test set: the numbers that the
model is queried about. An answer is signed by the clean room that the charge names, and HPKE (RFC 9180) seals what is
inside:

    {"charge":"run-1","id":"question-1","kind":"answer","question":"<sha256>","sealed":"<base64url>","v":1}

So the room of that charge answers, the contract's consumer asks, and a caller that repeats what it overheard gets
what it cannot open. A question is in the clear: a room that is not on the consumer's machine needs TLS before
it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from torch import Tensor

from client.keys.signer import Signer
from ledger.crypto.detached_jws import key_id_of, verify
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.answer_log import StoredAnswer
from trainer_adapter.ensembles.answer_room import Question

PATH: Final = "/v1/questions"
BODY_BYTES_MAX: Final = 1 << 20
ANSWER_BYTES_MAX: Final = 1 << 20
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_FIELDS: Final = ("charge", "id", "inputs", "kind", "sealing", "v")
_ANSWERED: Final = ("charge", "id", "kind", "question", "sealed", "v")


class NotSigned(Malformed):
    """A question that no key of the consumer signed."""


@dataclass(frozen=True, slots=True)
class SignedQuestion:
    """A question as it was read, and the key that its answer is sealed to (X25519, base64url)."""

    question: Question
    sealing: str


def question_bytes(charge: str, name: str, inputs: Tensor, sealing: str) -> bytes:
    """What is sent: the exact bytes that are signed."""
    return c.dump(
        {
            "charge": charge,
            "id": name,
            "inputs": c.base64url(input_bytes(inputs)),
            "kind": "question",
            "sealing": sealing,
            "v": 1,
        }
    )


def input_bytes(inputs: Tensor) -> bytes:
    """One record's numbers, little-endian."""
    array = np.ascontiguousarray(inputs.detach().cpu().numpy())
    return (array if sys.byteorder == "little" else array.byteswap()).tobytes()


def read_question(
    data: bytes, signature: str, keys: Mapping[str, PublicKey], charge: str, like: Tensor
) -> SignedQuestion:
    """A question of the consumer's. The signature is checked first: an unsigned question gets no other answer.

    Args:
        keys: the consumer's keys in force, by thumbprint.
        like: a public record's inputs, whose type and shape a question has.

    Raises:
        NotSigned: unless one of the keys signed it. Malformed: for a question of another charge, or the wrong shape.
    """
    if not _signed_by(keys, data, signature):
        rule = "must be a detached JWS over the body, by a key in force of the contract's consumer"
        raise NotSigned("signature", rule)
    members = c.fields(c.parse_canonical(data, BODY_BYTES_MAX, "question"), "", _FIELDS)
    c.one_of(members["kind"], "kind", ("question",))
    c.integer(members["v"], "v", 1, 1)
    if members["charge"] != charge:
        raise Malformed("charge", f"is another's: this room answers for {charge}")
    raw = c.unbase64url(c.string(members["inputs"], "inputs", BODY_BYTES_MAX), "inputs")
    inputs = _inputs(raw, like)
    sealing = c.key_bytes(members["sealing"], "sealing")
    return SignedQuestion(Question(c.name(members["id"], "id"), c.digest(raw), inputs), sealing)


def _signed_by(keys: Mapping[str, PublicKey], data: bytes, signature: str) -> bool:
    try:
        key = keys.get(key_id_of(signature))
        if key is not None:
            verify(signature, data, key)
    except Malformed:
        return False
    return key is not None


def _inputs(raw: bytes, like: Tensor) -> Tensor:
    kind = like.numpy().dtype.newbyteorder("<")
    count = math.prod(like.shape)
    if len(raw) != count * kind.itemsize:
        rule = f"must be {count} numbers of {kind.name}, shape {tuple(like.shape)}: {len(raw)} bytes are not"
        raise Malformed("inputs", rule)
    inputs = torch.from_numpy(np.frombuffer(raw, dtype=kind).astype(kind.newbyteorder("="))).reshape(like.shape)
    if inputs.is_floating_point() and not bool(inputs.isfinite().all()):
        raise Malformed("inputs", "must be finite numbers")
    return inputs


def answer_bytes(charge: str, given: StoredAnswer, sealing: str) -> bytes:
    """An answer as it is sent, sealed to the asker. Raises: Malformed, for a key that no one could have."""
    bound = _bound(charge, given.id, given.question)
    try:
        public = X25519PublicKey.from_public_bytes(c.unbase64url(sealing, "sealing"))
        sealed = _SUITE.encrypt(c.dump({"answer": given.answer, "step": given.step}), public, info=c.dump(bound))
    except ValueError:
        raise Malformed("sealing", "must be an X25519 key") from None
    return c.dump({**bound, "sealed": c.base64url(sealed)})


def open_answer(data: bytes, signature: str, room: PublicKey, sent: bytes, private: X25519PrivateKey) -> c.Object:
    """What is in an answer: ``{"answer": ..., "step": ...}``.

    Args:
        room: the signing key of the clean room, as the charge's entry names it.
        sent: the question's bytes. private: the key that it names as ``sealing``.

    Raises:
        Malformed: for an answer by another room, to another question, or sealed to another key.
    """
    verify(signature, data, room)
    members = c.fields(c.parse_canonical(data, ANSWER_BYTES_MAX, "answer"), "answer", _ANSWERED)
    question = c.fields(c.parse_canonical(sent, BODY_BYTES_MAX, "question"), "", _FIELDS)
    digest = c.digest(c.unbase64url(question["inputs"], "inputs"))
    bound = _bound(str(question["charge"]), str(question["id"]), digest)
    if {name: members[name] for name in bound} != bound:
        raise Malformed("answer", "is to another question")
    try:
        plain = _SUITE.decrypt(c.unbase64url(members["sealed"], "answer.sealed"), private, info=c.dump(bound))
    except (InvalidTag, ValueError):
        raise Malformed("answer.sealed", "does not open with this question's key") from None
    return c.fields(c.parse(bytes(plain), ANSWER_BYTES_MAX, "answer"), "answer", ("answer", "step"))


def _bound(charge: str, name: str, digest: str) -> c.Object:
    return {"charge": charge, "id": name, "kind": "answer", "question": digest, "v": 1}


def fresh_sealing() -> tuple[X25519PrivateKey, str]:
    """A key for one question's answer: the private half, and the public one as the question names it."""
    private = X25519PrivateKey.generate()
    return private, c.base64url(private.public_key().public_bytes_raw())


def signature_header(signer: Signer, data: bytes) -> str:
    """The signature header of a question or an answer."""
    return signer.sign(data)
