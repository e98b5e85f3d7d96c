"""Templates: Jinja2 with everything escaped, and an error for a name that is not there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.assets import asset

_FOLDER: Final = files("api.console") / "templates"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(str(_FOLDER)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(address=address, asset=asset, cells=cells)
    return made


def render(template: str, **values: object) -> bytes:
    """A page. Raises: jinja2.TemplateError, for a template with an undefined value."""
    return _environment().get_template(template).render(**values).encode()
