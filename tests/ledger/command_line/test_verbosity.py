"""How much a command shows: arithmetic only where it was asked for, and by each command for itself."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Final

from ledger.command_line.verbosity import is_verbose, plain, set_verbose

SENTENCE: Final = "the account has room for 3 runs (order 5.5) and no more (order 7), which the budget (ε 6) binds"


def _shown(context: Context, *, wanted: bool | None = None) -> tuple[bool, str]:
    if wanted is not None:
        context.run(set_verbose, wanted=wanted)
    return context.run(is_verbose), context.run(plain, SENTENCE)


def test_a_sentence_has_its_orders_where_the_command_requested_them() -> None:
    """Only they are left out, and one command's wish is not another's."""
    short = "the account has room for 3 runs and no more, which the budget (ε 6) binds"
    one, other = copy_context(), copy_context()
    assert _shown(one) == (False, short)
    assert _shown(one, wanted=True) == (True, SENTENCE)
    assert _shown(other) == (False, short)
    assert _shown(one, wanted=False) == (False, short)
