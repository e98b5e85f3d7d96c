"""Templates: Jinja2 with everything escaped, and an error for a name that is not there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.console.frame import cells
from api.console.frame.addresses import address, service_path
from api.console.frame.assets import asset
from api.console.frame.names import required_by
from api.console.frame.next_commands import next_command

_FOLDER: Final = files("api.console") / "templates"


@cache
def _environment(*folders: str) -> Environment:
    made = Environment(
        loader=FileSystemLoader([*folders, str(_FOLDER)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals.update(address=address, asset=asset, cells=cells, next_command=next_command, service_path=service_path)
    made.globals.update(required_by=required_by)
    return made


def render(template: str, /, *folders: str, **values: object) -> bytes:
    """A page, of a template of the console or of other folders.

    Raises:
        jinja2.TemplateError: for a template with an undefined value.
    """
    return _environment(*folders).get_template(template).render(**values).encode()
