"""The fewest changes with which a DEPA contract and its pipeline can be imported, each with its reason.

Each refusal of the check has at most one change that removes it without weakening anyone's privacy: preprocessing
fitted on records is removed, exact results are removed, a run's ε is lowered to the contract's. A decision of the
parties (who they are, how long the contract holds, how many rows a person may have in a join) is never invented: a
missing one is listed as needed. Changes are made until the check refuses nothing, or nothing that a change could
remove.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import msgspec

from ledger.accounting.epsilon_report import report_epsilon
from ledger.mechanisms.plan import Plan
from ledger.wire.canonical_json import Object
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from policy.depa.contract.contract import PATH as CONTRACT
from policy.depa.contract.decimal_json import parse
from policy.depa.contract.json_paths import ABSENT, set_value, value_at, write, write_lines
from policy.depa.contract.reasons import Reason, spelled
from policy.depa.evaluation import RELATION, Terms
from policy.depa.import_check import Checked, check
from policy.depa.pipeline.joins import BOUND
from policy.depa.pipeline.pipeline import PATH as PIPELINE

ROUNDS_MAX: Final = 16
"""Changes can reveal hidden refusals; there are never more rounds than phases."""
_PLACES: Final = 6


@dataclass(frozen=True, slots=True)
class PartyDecisions:
    """Decisions of the parties that neither file has and no program may make.

    Attributes:
        tdc: the consumer's DID.
        providers: the DID of each TDP, by the owner's name in the contract's datasets.
        starts: Unix milliseconds; ``ends`` likewise.
        rows: the bound that the TDPs declare on the rows of one person in each join.
        least_noise: whether the TDPs lower the contract's ``noise_multiplier`` to the run's; else the run's ε is
            lowered until it has as much noise as the contract requires.
    """

    tdc: str = ""
    providers: Mapping[str, str] = field(default_factory=dict)
    starts: int | None = None
    ends: int | None = None
    rows: int | None = None
    least_noise: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a file: its path, the old and new value in JSON (empty if there was none), and the reason."""

    field: str
    before: str
    after: str
    reason: str

    def to_json(self) -> Object:
        """As JSON."""
        return {"after": self.after, "before": self.before, "field": self.field, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Adapted:
    """A pair after its changes.

    Attributes:
        contract: the bytes of the file; ``pipeline`` likewise.
        needed: the decisions that are still missing, each with its option.
        checked: the check of this pair.
    """

    contract: bytes
    pipeline: bytes
    changes: tuple[Change, ...]
    needed: tuple[str, ...]
    checked: Checked


def adapt(contract: bytes, pipeline: bytes, terms: Terms, decided: PartyDecisions) -> Adapted:
    """Change a bare contract and its pipeline as little as possible until the check imports them.

    Args:
        terms: of the check; ``rows`` and ``signed`` are not used, since a changed contract has no signature yet.

    Raises:
        Malformed: for bytes that the check cannot read.
    """
    files = {CONTRACT: parse(contract, CONTRACT), PIPELINE: parse(pipeline, PIPELINE)}
    terms = replace(terms, rows=None, signed=False)
    checked = check(contract, pipeline, terms)
    changes: list[Change] = []
    for _ in range(ROUNDS_MAX):
        new = list(_changes(checked, files, terms, decided))
        if not new:
            break
        changes += new
        checked = check(write(files[CONTRACT]), write(files[PIPELINE]), terms)
    written = [
        data if not any(change.field.startswith(name) for change in changes) else write_lines(files[name])
        for name, data in ((CONTRACT, contract), (PIPELINE, pipeline))
    ]
    needed = dict.fromkeys(
        text for reason in checked.reasons if reason.refused and (text := _missing_decision(reason, files))
    )
    return Adapted(written[0], written[1], tuple(changes), tuple(needed), check(written[0], written[1], terms))


def _changes(checked: Checked, files: dict[str, Any], terms: Terms, decided: PartyDecisions) -> Iterator[Change]:
    changed: set[str] = set()
    for reason in checked.reasons:
        make = _REMEDIES.get(reason.code)
        remedy = make(_Refusal(reason, files, checked, terms, decided)) if make and reason.refused else None
        if remedy is None or remedy[0] in changed:
            continue
        path, value = remedy
        before = value_at(files, path)
        if before == value:
            continue
        set_value(files, path, value)
        changed.add(path)
        yield Change(path, "" if before is ABSENT else write(before).decode(), write(value).decode(), reason.text)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal, with the inputs of its remedy."""

    reason: Reason
    files: dict[str, Any]
    checked: Checked
    terms: Terms
    decided: PartyDecisions

    @property
    def path(self) -> str:
        return self.reason.field

    @property
    def value(self) -> Any:  # noqa: ANN401 - JSON
        return value_at(self.files, self.path)


Remedy = tuple[str, Any] | None
"""The path of a field and its new value; None if no change removes the refusal."""


def _party(refusal: _Refusal) -> Remedy:
    did = (
        refusal.decided.tdc
        if refusal.path == f"{CONTRACT}.tdc"
        else refusal.decided.providers.get(_owner(refusal.path, refusal.files))
    )
    return (refusal.path, did) if did else None


def _owner(path: str, files: Mapping[str, Any]) -> str:
    owner = value_at(files, f"{path.rpartition('.')[0]}.owner")
    return owner if isinstance(owner, str) else ""


def _parties(refusal: _Refusal) -> Remedy:
    """Set the TDPs of a contract to the providers of its datasets."""
    path = f"{CONTRACT}.tdps"
    datasets, parties = value_at(refusal.files, f"{CONTRACT}.datasets"), value_at(refusal.files, path)
    listed = [each.get("provider") for each in datasets if isinstance(each, dict)] if isinstance(datasets, list) else []
    if (refusal.path != path and refusal.reason.code == "list_length") or not all(listed) or not listed:
        return None
    return path, list(dict.fromkeys([*(parties if isinstance(parties, list) else []), *listed]))


def _date(refusal: _Refusal) -> Remedy:
    moment = refusal.decided.ends if refusal.path.endswith("expiryTime") else refusal.decided.starts
    return None if moment is None else (refusal.path, format_time(moment))


def _number(refusal: _Refusal) -> Remedy:
    """Write a pipeline's number as a number; only a contract may have it as a string."""
    match = re.fullmatch(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?", str(refusal.value), re.ASCII)
    if not refusal.path.startswith(PIPELINE) or match is None:
        return None
    return refusal.path, Fraction(match[0]) if match[2] else int(match[0])


def _bound(refusal: _Refusal) -> Remedy:
    return None if refusal.decided.rows is None else (f"{refusal.path}.{BOUND}", refusal.decided.rows)


def _not_fitted(refusal: _Refusal) -> Remedy:
    """Remove preprocessing that is fitted on other records; what a library fits by itself cannot be removed."""
    instead = {"scaler": None, "stratify": False, "normalize": False, "missing_strategy": "drop"}
    name = refusal.path.rpartition(".")[2]
    return (refusal.path, instead[name]) if name in instead else None


def _no_metrics(refusal: _Refusal) -> Remedy:
    return refusal.path, []


def _cap(refusal: _Refusal) -> Remedy:
    """Lower a stage's own ε or δ to the contract's."""
    limits = [
        key["epsilon_max" if refusal.reason.code == "run_above_contract" else "delta_max"]
        for key in refusal.checked.keys
    ]
    numbers = [Fraction(limit) for limit in limits if isinstance(limit, str)]
    return (refusal.path, min(numbers)) if numbers and isinstance(refusal.value, int | Fraction) else None


def _noise(refusal: _Refusal) -> Remedy:
    """Lower the run's ε until its noise is the contract's; or the contract's noise, if the TDPs decide so."""
    priced = refusal.checked.priced
    if priced is None or len(priced.plans) != 1 or not isinstance(priced.plans[0], Plan):
        return None
    plan = priced.plans[0]
    if refusal.decided.least_noise:
        return refusal.path, _down(plan.noise_multiplier, 3)
    least = Fraction(str(refusal.value))
    noisy = msgspec.structs.replace(plan, noise_multiplier=least)
    report = report_epsilon(noisy.mechanism(noisy.steps), priced.report.delta, RELATION)
    stages = [at for at in _stages(refusal.files) if value_at(refusal.files, at) is not ABSENT]
    return (stages[0], Fraction(_down(report.epsilon, _PLACES))) if len(stages) == 1 else None


def _stages(files: Mapping[str, Any]) -> Iterator[str]:
    """The paths at which stages may state their ε, in every spelling."""
    listed = value_at(files, f"{PIPELINE}.pipeline")
    for place in range(len(listed) if isinstance(listed, list) else 0):
        for inner in ("config.privacy_params", "config"):
            for name in ("epsilon", "epsilon_threshold", "EPSILON"):
                yield f"{PIPELINE}.pipeline[{place}].{inner}.{name}"


_REMEDIES: Final[dict[str, Callable[[_Refusal], Remedy]]] = {
    "contract_ended": _date,
    "contract_not_begun": _date,
    "delta_above_contract": _cap,
    "did_missing": _party,
    "join_unbounded": _bound,
    "list_length": _parties,
    "metrics_exact": _no_metrics,
    "noise_below_contract": _noise,
    "number_spelling": _number,
    "preprocessing_fitted": _not_fitted,
    "provider_not_party": _parties,
    "run_above_contract": _cap,
}
"""The change that removes each refusal, by its code."""


def _missing_decision(reason: Reason, files: Mapping[str, Any]) -> str:
    """The decision that a refusal needs, and its option; empty if there is none."""
    match reason.code, reason.field:
        case "did_missing", "contract.tdc":
            return "the consumer's DID: --tdc DID"
        case "did_missing", path if owner := _owner(path, files):
            return f"the DID of the provider {spelled(owner)}: --tdp {owner}=DID"
        case "contract_ended", _:
            return "the date on which the contract ends: --ends 2027-01-01T00:00:00Z"
        case "contract_not_begun", _:
            return "the date on which the contract begins: --starts 2026-01-01T00:00:00Z"
        case "join_unbounded", _:
            return "how many rows a person has at most in a join, as the TDPs declare: --rows-per-principal 1"
        case _:
            return ""


def _down(number: Fraction, places: int) -> str:
    return format_number(Fraction(int(number * 10**places), 10**places))
