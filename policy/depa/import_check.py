"""All phases of one import, in order: read, validate, import, evaluate, price. An error stops no later phase.

DEPA's contract does not state how many runs it allows: it is assumed to allow one, and its parties may state more when
they sign our document. Its purpose names the payload by its digest, so that two contracts under one id stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.outcomes import Code
from ledger.wire.canonical_json import Json, Object, digest, dump
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from policy.depa.contract.contract import PATH as CONTRACT
from policy.depa.contract.contract import Contract, read_contract
from policy.depa.contract.cose_sign import Envelope, is_envelope, read_envelope
from policy.depa.contract.decimal_json import parse
from policy.depa.contract.did_signatures import check_signatures, read_keys
from policy.depa.contract.reasons import Reason, Reasons
from policy.depa.contract.service_receipt import ContractService, Receipt, check_receipt
from policy.depa.contract.service_receipt import to_json as receipt_to_json
from policy.depa.evaluation import Terms, evaluate
from policy.depa.pipeline.pipeline import PATH as PIPELINE
from policy.depa.pipeline.pipeline import read_pipeline
from policy.depa.run_privacy_cost import Priced, price
from policy.documents import ContractDocument


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check.

    Attributes:
        code: the outcome; its exit code is the command's.
        payload: the digest of the contract's payload; ``pipeline`` that of the pipeline's bytes.
        contract: our contract; None if anything refuses.
        charge: the body of a charge under it; None also if the price is unknown.
        receipt: the pinned contract service's, verified; None if none is pinned, or it proves nothing.
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
    receipt: Receipt | None = None

    def to_json(self) -> Object:
        """The form for programs; the same input gives the same bytes."""
        receipt: Object = {} if self.receipt is None else {"receipt": receipt_to_json(self.receipt)}
        return {
            **receipt,
            "charge": self.charge,
            "code": self.code.word,
            "contract": None if self.contract is None else self.contract.decode(),
            "envelope": None if self.envelope is None else self.envelope.to_json(),
            "inputs": {"contract": self.payload, "pipeline": self.pipeline},
            "keys": list(self.keys),
            "price": None if self.priced is None else self.priced.to_json(),
            "reasons": [reason.to_json() for reason in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class Registration:
    """The importer's evidence of the contract's registration.

    Attributes:
        service: the contract service that is pinned: it must have registered the envelope.
        receipt: the receipt's own file; None for the one that the envelope holds.
    """

    service: ContractService
    receipt: bytes | None = None


def check(
    contract: bytes,
    pipeline: bytes,
    terms: Terms,
    did_documents: Iterable[bytes] = (),
    registration: Registration | None = None,
) -> Checked:
    """Import a DEPA contract, bare or in its envelope, with a pipeline; or report every reason why not.

    Args:
        did_documents: of the parties; nothing is ever fetched.
        registration: None if no contract service is pinned: then no receipt is read.

    Raises:
        Malformed: for bytes that are neither JSON nor COSE_Sign, too many or nested too deep.
    """
    reasons = Reasons()
    envelope = read_envelope(contract) if is_envelope(contract) else None
    payload = contract if envelope is None else envelope.payload
    read = read_contract(parse(payload, CONTRACT), reasons)
    receipt: Receipt | None = None
    if envelope is None:
        if terms.signed or registration is not None:
            reasons.refuse("signatures_absent", CONTRACT)
        else:
            reasons.warn("signatures_absent", CONTRACT)
    else:
        check_signatures(envelope, read, read_keys(did_documents), reasons)
        if registration is not None:
            receipt = check_receipt(envelope, registration.receipt, registration.service, terms.now, reasons)
    stages = read_pipeline(parse(pipeline, PIPELINE), read, reasons)
    evaluate(read, stages, terms, reasons)
    priced = price(read, stages, terms, reasons)
    code = _code(reasons)
    ours = (
        None
        if reasons.refused
        else _contract_document(read, digest(payload), terms, _waivers(pipeline, terms, reasons))
    )
    charge: Object | None = None
    if ours is not None and priced is not None:
        charge = {
            "contract": digest(ours),
            "pipeline": digest(pipeline),
            "plan": priced.whole.to_json(),
            "unit_records_max": priced.rows or 1,  # one row for a join whose missing bound is waived
        }
    return Checked(
        code=code,
        reasons=reasons.in_order(),
        payload=digest(payload),
        pipeline=digest(pipeline),
        envelope=envelope,
        keys=tuple(_data_keys(read)),
        priced=priced,
        contract=ours,
        charge=charge,
        receipt=receipt,
    )


def _code(reasons: Reasons) -> Code:
    refused = {reason.phase for reason in reasons.found if reason.refused}
    if "read" in refused:  # a signature or receipt: nothing else is read before the form is validated
        return Code.SIGNATURE_INVALID
    return Code.POLICY_DENIED if refused else Code.PERMITTED


def _contract_document(contract: Contract, payload: str, terms: Terms, waivers: list[Json]) -> bytes:
    """Our contract for a DEPA contract without refusals, whose payload has this digest."""
    assert contract.starts is not None
    assert contract.ends is not None
    document: Object = {
        "datasets": [{"dataset": dataset.id, "provider": dataset.provider} for dataset in contract.datasets],
        "ends": format_time(contract.ends),
        "id": contract.id,
        "kind": "contract",
        "purpose": f"{contract.purpose}; DEPA contract {contract.id}, payload SHA-256 {payload}",
        "run": _run_limits(contract),
        "runs_max": terms.runs,
        "starts": format_time(contract.starts),
        "tdc": contract.tdc,
        "tdps": list(contract.tdps),
        "v": 1,
        "version": terms.version,
        **({"waivers": waivers} if waivers else {}),
    }
    data = dump(document)
    ContractDocument.parse(data)
    return data


def _waivers(pipeline: bytes, terms: Terms, reasons: Reasons) -> list[Json]:
    """The waivers that this pipeline needs: of each reported exposure, by each SRO."""
    codes = {reason.code for reason in reasons.found}
    waived = terms.waived
    if waived is None:
        return []
    return [
        {
            "ends": format_time(waived.ends),
            "issuer": issuer,
            "pipeline": digest(pipeline),
            "reason": waived.reason,
            "waives": code,
        }
        for code in sorted(codes.intersection(waived.codes))
        for issuer in waived.issuers
    ]


def _run_limits(contract: Contract) -> Object:
    """The strictest bounds on one run, since one run opens every dataset."""
    noise = max((bound.noise for bound in contract.bounds if bound.noise is not None), default=None)
    limits = {
        "delta_max": contract.delta_max(),
        "epsilon_max": contract.epsilon_max(),
        "noise_multiplier_min": noise,
    }
    return {name: format_number(limit) for name, limit in limits.items() if limit is not None}


def _data_keys(contract: Contract) -> list[Object]:
    """The data keys in order, each with the datasets it opens and the least ε and δ any of them allows a run.

    One data key is one partition: a charge names one partition for each key here, whichever datasets its pipeline
    reads, because DEPA's clean room mounts them all.
    """
    return [
        {
            "datasets": [
                {"dataset": dataset.id, "key": dataset.key, "provider": dataset.provider} for dataset in group
            ],
            "delta_max": _number_text(contract.delta_max(group)),
            "epsilon_max": _number_text(contract.epsilon_max(group)),
        }
        for group in contract.by_key()
    ]


def _number_text(number: Fraction | None) -> str | None:
    return None if number is None else format_number(number)
