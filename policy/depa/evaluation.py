"""The evaluation of a pipeline: each stage under every cap, each exposure under the Level, each date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from policy.depa.contract.contract import PATH, Contract
from policy.depa.contract.reasons import Reasons
from policy.depa.pipeline.pipeline import Pipeline
from policy.depa.pipeline.preprocessing import TREES_NEED, Exposure
from policy.depa.pipeline.training_stage import RequestedPrivacy

RELATION: Final = "REPLACE_SPECIAL"
"""Losses are reported for zero-out neighbours, the ledger's default."""


@dataclass(frozen=True, slots=True)
class Waived:
    """Reasons that SROs waive, by their codes.

    Attributes:
        issuers: the SRO of each domain that the datasets are in.
        ends: Unix milliseconds.
        reason: an explanation for people.
    """

    codes: tuple[str, ...]
    issuers: tuple[str, ...]
    ends: int
    reason: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The importer's statements.

    Attributes:
        now: Unix milliseconds.
        level: the sensitivity Level of the datasets; 1 unless an SRO sets another.
        records: how many records the training stages train on, after joins and splits; None if unknown.
        rows: the bound that the TDPs declare on the rows of one data principal; None if they declare none.
        runs: how many runs the contract is assumed to allow: its text allows one.
        version: of the contract as our document; an amendment is the next version.
        budget: the ε of a partition that runs are counted against; the contract's least ε if None.
        signed: whether the contract must be in its envelope, signed by every party.
        waived: what SROs waive of this pipeline; our contract states it, and they sign it too.
    """

    now: int
    level: int = 1
    records: int | None = None
    rows: int | None = None
    runs: int = 1
    version: int = 1
    budget: Fraction | None = None
    signed: bool = False
    waived: Waived | None = None


def evaluate(contract: Contract, pipeline: Pipeline, terms: Terms, reasons: Reasons) -> None:
    """Check a pipeline against its contract, the Level and the time; every error becomes a reason."""
    _dates(contract, terms.now, reasons)
    for join in pipeline.joins:
        if join.rows is None and terms.rows is None:
            _stop(Exposure("join_unbounded", join.path, None, ""), terms, reasons, warned=False)
    for stage in pipeline.trainings:
        _caps(stage.privacy, contract, reasons)
        for exposure in stage.exposures:
            more = f"{exposure.text}; " if exposure.text else ""
            changed = replace(exposure, text=f"{more}Level {terms.level}")
            _stop(changed, terms, reasons, warned=terms.level == 0)
        if stage.trees and stage.private:
            reasons.warn("training_claim", stage.privacy.path, stage.privacy.epsilon, TREES_NEED)
    if pipeline.trainings:
        detail = "it also trains a replica without privacy on the same data, and prints exact losses of both"
        reasons.warn("reference_trainer", "pipeline.pipeline", None, detail)
    _sum(pipeline, contract, terms, reasons)


def _stop(exposure: Exposure, terms: Terms, reasons: Reasons, *, warned: bool) -> None:
    """Refuse an exposure without a price, or warn of it if the Level or an SRO's waiver permits it."""
    if terms.waived is not None and exposure.code in terms.waived.codes:
        more = f"{exposure.text}; " if exposure.text else ""
        until = f"waived by {', '.join(terms.waived.issuers)} until {format_time(terms.waived.ends)}"
        reasons.warn(exposure.code, exposure.field, exposure.value, f"{more}{until}")
        return
    note = reasons.warn if warned else reasons.refuse
    note(exposure.code, exposure.field, exposure.value, exposure.text)


def group_of(pipeline: Pipeline, terms: Terms) -> int | None:
    """The rows of one data principal charged for: the greatest bound declared, None if a join has none."""
    declared = [join.rows or terms.rows for join in pipeline.joins]
    group_sizes = [rows for rows in (*declared, terms.rows or 1) if rows is not None]
    return None if None in declared else max(group_sizes)


def compared(value: Fraction, most: Fraction) -> str:
    """Two numbers, the first above the second."""
    return f"{format_number(value)} > {format_number(most)}"


def _dates(contract: Contract, now: int, reasons: Reasons) -> None:
    if contract.starts is not None and now < contract.starts:
        reasons.refuse("contract_not_begun", f"{PATH}.startTime", format_time(contract.starts))
    if contract.ends is not None and now >= contract.ends:
        reasons.refuse("contract_ended", f"{PATH}.expiryTime", format_time(contract.ends))


def _caps(privacy: RequestedPrivacy, contract: Contract, reasons: Reasons) -> None:
    epsilon, delta = contract.epsilon_max(), contract.delta_max()
    if privacy.epsilon is not None and epsilon is not None and privacy.epsilon > epsilon:
        reasons.refuse("run_above_contract", privacy.path, privacy.epsilon, compared(privacy.epsilon, epsilon))
    if privacy.delta is not None and delta is not None and privacy.delta > delta:
        reasons.refuse("delta_above_contract", privacy.delta_path, privacy.delta, compared(privacy.delta, delta))


def _sum(pipeline: Pipeline, contract: Contract, terms: Terms, reasons: Reasons) -> None:
    """Check several stages as one run. Without the number of records only their sum bounds them together."""
    requested = [
        stage.privacy.epsilon for stage in pipeline.trainings if stage.private and stage.privacy.epsilon is not None
    ]
    most = contract.epsilon_max()
    if terms.records is not None or len(requested) < 2 or most is None or sum(requested) <= most:
        return
    detail = (
        f"{' + '.join(format_number(epsilon) for epsilon in requested)} = {compared(sum(requested, Fraction(0)), most)}"
    )
    reasons.refuse("run_above_contract", "pipeline.pipeline", None, detail)
