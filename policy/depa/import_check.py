"""All phases of one import, in order: read, validate, import, evaluate, price. Each goes on after the errors before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledger.domain.outcomes import Code
from ledger.wire.canonical_json import Object, digest
from policy.depa.contract.contract import PATH as CONTRACT
from policy.depa.contract.contract import read_contract
from policy.depa.contract.cose_sign import Envelope, is_envelope, read_envelope
from policy.depa.contract.decimal_json import parse
from policy.depa.contract.did_signatures import check_signatures, read_keys
from policy.depa.contract.reasons import Reason, Reasons
from policy.depa.document_import import charge_terms, contract_document, keys_told
from policy.depa.evaluation import evaluate
from policy.depa.import_terms import Terms
from policy.depa.pipeline.pipeline import PATH as PIPELINE
from policy.depa.pipeline.pipeline import read_pipeline
from policy.depa.pricing import Priced, price

SIGNATURE_CODES: Final = frozenset(
    {"certificate_differs", "participants_differ", "signature_algorithm", "signature_invalid"}
    | {"signature_missing", "signer_key_unknown", "signer_not_participant", "signer_twice"}
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found.

    Attributes:
        code: permitted, or why not in one word; its exit code is the command's.
        payload: the digest of the contract's payload; ``pipeline`` that of the pipeline's bytes.
        contract: our contract; None if anything refuses.
        charge: what a charge under it must say; None too where the price is not known.
    """

    code: Code
    reasons: tuple[Reason, ...]
    payload: str
    pipeline: str
    envelope: Envelope | None
    keys: tuple[Object, ...]
    priced: Priced | None
    contract: bytes | None
    charge: Object | None

    def to_json(self) -> Object:
        """As it is shown to programs; the same input gives the same bytes."""
        return {
            "charge": self.charge,
            "code": self.code.word,
            "contract": None if self.contract is None else self.contract.decode(),
            "envelope": None if self.envelope is None else self.envelope.to_json(),
            "inputs": {"contract": self.payload, "pipeline": self.pipeline},
            "keys": list(self.keys),
            "price": None if self.priced is None else self.priced.to_json(),
            "reasons": [reason.to_json() for reason in self.reasons],
        }


def check(contract: bytes, pipeline: bytes, terms: Terms, did_documents: Iterable[bytes] = ()) -> Checked:
    """Import a DEPA contract, bare or in its envelope, with a pipeline; or say every reason why not.

    Args:
        did_documents: of the parties; nothing is ever fetched.

    Raises:
        Malformed: for bytes that are no JSON or no COSE_Sign, are too many or nested too deep.
    """
    reasons = Reasons()
    envelope = read_envelope(contract) if is_envelope(contract) else None
    payload = contract if envelope is None else envelope.payload
    read = read_contract(parse(payload, CONTRACT), reasons)
    if envelope is None:
        reasons.warn("signatures_absent", CONTRACT)
    else:
        check_signatures(envelope, read, read_keys(did_documents), reasons)
    stages = read_pipeline(parse(pipeline, PIPELINE), read, reasons)
    evaluate(read, stages, terms, reasons)
    priced = price(read, stages, terms, reasons)
    code = _code(reasons)
    ours = None if reasons.refused else contract_document(read, digest(payload), terms)
    return Checked(
        code=code,
        reasons=reasons.in_order(),
        payload=digest(payload),
        pipeline=digest(pipeline),
        envelope=envelope,
        keys=tuple(keys_told(read)),
        priced=priced,
        contract=ours,
        charge=None if ours is None or priced is None else charge_terms(ours, digest(pipeline), priced),
    )


def _code(reasons: Reasons) -> Code:
    refused = {reason.code for reason in reasons.found if reason.refused}
    if refused & SIGNATURE_CODES:
        return Code.SIGNATURE_INVALID
    return Code.POLICY_DENIED if refused else Code.PERMITTED
