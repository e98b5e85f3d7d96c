"""What an import makes: our contract, and what every charge under it must say. The one place that knows their form.

DEPA's contract does not say how many runs it allows: it is taken to allow one, and to say more is for its parties,
who sign our document anew. Its purpose names the payload by its digest, so that two contracts under one id stay apart.
"""

from __future__ import annotations

from fractions import Fraction

from ledger.wire.canonical_json import Object, digest, dump
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from policy.depa.contract.contract import Contract
from policy.depa.import_terms import Terms
from policy.depa.pricing import Priced
from policy.documents import ContractDocument


def contract_document(contract: Contract, payload: str, terms: Terms) -> bytes:
    """Our contract, of a DEPA contract that nothing refuses, whose payload has this digest."""
    epsilon = contract.epsilon_max()
    assert epsilon is not None
    assert contract.starts is not None
    assert contract.ends is not None
    document: Object = {
        "datasets": [{"dataset": one.id, "provider": one.provider} for one in contract.datasets],
        "ends": format_time(contract.ends),
        "id": contract.id,
        "kind": "contract",
        "purpose": f"{contract.purpose}; DEPA contract {contract.id}, payload SHA-256 {payload}",
        "run": _run(contract, epsilon),
        "runs_max": terms.runs,
        "starts": format_time(contract.starts),
        "tdc": contract.tdc,
        "tdps": list(contract.tdps),
        "v": 1,
        "version": terms.version,
    }
    data = dump(document)
    ContractDocument.parse(data)
    return data


def _run(contract: Contract, epsilon: Fraction) -> Object:
    """The bounds on one run: of several the strictest, since one run opens every dataset."""
    delta = contract.delta_max()
    noise = max((bound.noise for bound in contract.bounds if bound.noise is not None), default=None)
    run: Object = {"epsilon_max": format_number(epsilon)}
    if delta is not None:
        run["delta_max"] = format_number(delta)
    if noise is not None:
        run["noise_multiplier_min"] = format_number(noise)
    return run


def charge_terms(contract: bytes, pipeline: str, priced: Priced) -> Object:
    """What a charge of this pipeline says, beside its partitions and its clean room."""
    return {
        "contract": digest(contract),
        "pipeline": pipeline,
        "plan": priced.whole.to_json(),
        "unit_records_max": priced.rows,
    }


def keys_told(contract: Contract) -> list[Object]:
    """The data keys in order, each with the datasets it opens and the least ε and δ any of them allows a run.

    One data key is one partition: a charge names one partition for each key here, whichever datasets its pipeline
    reads, because DEPA's clean room mounts them all.
    """
    return [
        {
            "datasets": [{"dataset": one.id, "key": one.key, "provider": one.provider} for one in group],
            "delta_max": _least(contract, [one.id for one in group], "delta"),
            "epsilon_max": _least(contract, [one.id for one in group], "epsilon"),
        }
        for group in contract.by_key()
    ]


def _least(contract: Contract, datasets: list[str | None], name: str) -> str | None:
    stated = [getattr(bound, name) for bound in contract.bounds if bound.dataset in datasets]
    least = min((one for one in stated if one is not None), default=None)
    return None if least is None else format_number(least)
