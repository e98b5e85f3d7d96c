"""The verifier's checks of keys, checkpoints and proofs for the rest of the project: they raise :class:`Malformed`.

The stand-alone :mod:`ledger.verifier` raises ``VerificationError``, which nothing outside this package catches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ledger import verifier
from ledger.wire.malformed import Malformed

P = ParamSpec("P")
R = TypeVar("R")


def _raises_malformed(check: Callable[P, R]) -> Callable[P, R]:
    """The same check; a ``VerificationError`` becomes the ``Malformed`` of the same field and rule."""

    @wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return check(*args, **kwargs)
        except verifier.VerificationError as error:
            raise Malformed(error.field, error.rule) from None

    return checked


parse_log_key = _raises_malformed(verifier.LogKey.parse)
parse_witness_key = _raises_malformed(verifier.WitnessKey.parse)
open_checkpoint = _raises_malformed(verifier.Checkpoint.open)
verify_receipt = _raises_malformed(verifier.verify_receipt)
verify_account = _raises_malformed(verifier.verify_account)
with_rotations = _raises_malformed(verifier.with_rotations)
log_key_changes = _raises_malformed(verifier.log_key_changes)
check_extends = _raises_malformed(verifier.check_extends)
to_text = _raises_malformed(verifier.to_text)
