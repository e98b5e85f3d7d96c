"""``--verbose`` of the commands that read a book."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Final, get_type_hints

import typer

from ledger.command_line.verbosity import HELP, set_verbose

_OPTION: Final = Annotated[bool, typer.Option("--verbose", help=HELP)]


def verbosely(function: Callable[..., None]) -> Callable[..., None]:
    """A command that takes --verbose after its own options."""

    @wraps(function)
    def run(*, verbose: bool = False, **own: Any) -> None:  # noqa: ANN401 - arguments of any type
        set_verbose(wanted=verbose)
        function(**own)

    hints = {**get_type_hints(function, include_extras=True), "verbose": _OPTION}
    own = inspect.signature(function).parameters.values()
    added = Parameter("verbose", Parameter.KEYWORD_ONLY, default=False)
    run.__annotations__ = hints
    # `inspect` reads this attribute (PEP 362), which the type of a function does not declare.
    described: Any = run
    described.__signature__ = inspect.Signature(
        [parameter.replace(annotation=hints[parameter.name]) for parameter in (*own, added)], return_annotation=None
    )
    return run
