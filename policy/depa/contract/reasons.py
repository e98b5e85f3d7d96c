"""Every reason why a DEPA contract and pipeline are refused, or imported with a warning: a closed list of codes.

    refused  number_null  contract.constraints[0].privacy[2].epsilon_threshold  "null"

A code names an error, like the codes of a decision. Nothing here raises: a check continues and reports all of them.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Final, Literal

from ledger.wire.exact_numbers import format_number
from ledger.wire.records import Record

VALUE_MAX: Final = 100
PHASES: Final = ("read", "validate", "import", "evaluate", "price")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@.:-]{0,63}\Z")

CODES: Final[dict[str, tuple[str, str]]] = {
    # Signatures of an envelope.
    "signatures_absent": ("read", "holds no signature: every party signs what is imported"),
    "signature_algorithm": ("read", "is not an algorithm that fits the signer's key"),
    "signature_invalid": ("read", "does not verify"),
    "signature_missing": ("read", "has not signed"),
    "signer_key_unknown": ("read", "has no key in the DID documents given"),
    "signer_twice": ("read", "has signed more than once"),
    "participants_differ": ("read", "must be among the participants"),
    "signer_not_participant": ("read", "is not among the participants"),
    "certificate_differs": ("read", "is not a certificate of the key in the DID document"),
    # The contract service's receipt.
    "receipt_missing": ("read", "must be given: the contract service is pinned"),
    "receipt_invalid": ("read", "does not prove that the service registered this envelope"),
    "receipt_service_differs": ("read", "is not the contract service that is pinned"),
    "receipt_time": ("read", "is after now"),
    # Form.
    "field_unknown": ("validate", "is not a field of any known spelling"),
    "field_missing": ("validate", "is missing"),
    "field_type": ("validate", "is of another type"),
    "field_twice": ("validate", "is given twice in different spellings"),
    "value_unknown": ("validate", "is not a value that is known here"),
    "text_length": ("validate", "is empty or too long"),
    "name_spelling": ("validate", "is not a name that an entry can hold"),
    "list_length": ("validate", "has too few or too many items"),
    "number_null": ("validate", "is where a number must be"),
    "number_spelling": ("validate", "is not a number spelled plainly, as 1.5"),
    "number_out_of_range": ("validate", "is out of range"),
    "time_spelling": ("validate", "is not a time in UTC of whole seconds, as 2026-01-01T00:00:00.000Z"),
    "did_missing": ("validate", "must be a DID, as did:web:bank-a.example"),
    "placeholder": ("validate", "is a template variable that was not filled in"),
    # Contract.
    "dates_unordered": ("import", "is not after startTime"),
    "provider_not_party": ("import", "is none of tdps"),
    "dataset_twice": ("import", "names a dataset twice"),
    "dataset_ambiguous": ("import", "is the id of datasets of several providers, and constraints name the id alone"),
    "constraint_missing": ("import", "has no privacy constraint: without one nothing may be trained on it"),
    "constraint_twice": ("import", "constrains a dataset again"),
    "constraint_dataset_unknown": ("import", "constrains a dataset that the contract does not hold"),
    "term_unread": ("import", "says what nothing here reads: nobody is held to it"),
    "bound_not_carried": (
        "import",
        "is held to in this pipeline alone: the contract that is written does not state it",
    ),
    "keys_together": ("import", "opens several datasets: they are charged together"),
    # Pipeline.
    "stage_unknown": ("import", "is no stage that is known: nothing says what it does with the data"),
    "stage_unsupported": ("import", "is a stage whose privacy cannot be accounted for"),
    "stage_not_private": ("import", "trains on governed data without privacy"),
    "training_missing": ("import", "trains nothing"),
    "dataset_not_in_contract": ("import", "is no dataset of the contract"),
    "provider_differs": ("import", "is not who provides the dataset in the contract"),
    "mount_differs": ("import", "is not where the dataset of the contract is mounted"),
    "input_unknown": ("import", "is neither a dataset of the contract nor the result of a join before"),
    "join_unbounded": ("import", "joins without a bound on the rows of one data principal"),
    "join_query": ("import", "is not a plain equality join on the joining key"),
    "join_key_not_permitted": ("import", "is not a key that the contract permits joins on"),
    "target_not_permitted": ("import", "is not a target that the contract permits"),
    "clipping_differs": ("import", "is not the norm that the plan clips gradients to"),
    "layer_crosses_records": ("import", "lets records of one batch touch each other"),
    # Level, caps and dates.
    "preprocessing_fitted": ("evaluate", "is fitted on governed data without privacy"),
    "metrics_exact": ("evaluate", "are exact results on governed data"),
    "contract_not_begun": ("evaluate", "is after now"),
    "contract_ended": ("evaluate", "is not after now"),
    "run_above_contract": ("evaluate", "is above what the contract allows one run"),
    "delta_above_contract": ("evaluate", "is above what the contract allows one run"),
    "training_claim": ("evaluate", "is charged as its library claims: nothing here proves it"),
    "reference_trainer": ("evaluate", "must not run in DEPA's own trainer"),
    # Noise.
    "noise_unknown": ("price", "cannot be known without the number of records"),
    "delta_lowered": ("price", "is lowered to one over the number of records"),
    "noise_below_contract": ("price", "is less noise than the contract requires"),
    "not_priced": ("price", "has no proven price"),
}
"""By code: the phase that reports it, and its text, which follows a field's name."""


class Reason(Record, frozen=True):
    """One reason.

    Attributes:
        effect: whether it refuses by itself, or is a warning.
        field: a path that begins with ``contract`` or ``pipeline``.
        phase: the phase that reported it.
        text: the error in words, with what was compared.
        value: the value there in JSON, shortened; empty if there is none.
    """

    code: str
    effect: Literal["refused", "warned"]
    field: str
    phase: str
    text: str
    value: str

    @property
    def refused(self) -> bool:
        """Whether it refuses by itself."""
        return self.effect == "refused"


class Reasons:
    """The reasons so far, in order."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.found: list[Reason] = []

    def refuse(self, code: str, field: str, value: object = None, more: str = "") -> None:
        """Add an error that refuses."""
        self._note(code, "refused", field, value, more)

    def warn(self, code: str, field: str, value: object = None, more: str = "") -> None:
        """Add a warning, which refuses nothing."""
        self._note(code, "warned", field, value, more)

    def _note(self, code: str, effect: Literal["refused", "warned"], field: str, value: object, more: str) -> None:
        phase, text = CODES[code]
        shown = "" if value is None else spelled(value)
        self.found.append(Reason(code, effect, field, phase, f"{text}: {more}" if more else text, shown))

    @property
    def refused(self) -> bool:
        """Whether any of them refuses."""
        return any(reason.refused for reason in self.found)

    def in_order(self) -> tuple[Reason, ...]:
        """The reasons by phase, and within a phase in the order of their reports."""
        return tuple(sorted(self.found, key=lambda reason: PHASES.index(reason.phase)))


def spelled(value: object) -> str:
    """A value in JSON, in ASCII and shortened: a file's content must not control a terminal."""
    if isinstance(value, str | bool | int):
        text = json.dumps(value[:VALUE_MAX] if isinstance(value, str) else value)
    elif isinstance(value, Fraction):
        text = f"{'-' if value.numerator < 0 else ''}{format_number(abs(value))}"
    else:
        text = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "null"
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}..."


def under(path: str, name: str) -> str:
    """The path of a field; a name that is not plain is quoted."""
    return f"{path}.{name}" if _PLAIN_NAME.match(name) else f"{path}[{spelled(name)}]"
