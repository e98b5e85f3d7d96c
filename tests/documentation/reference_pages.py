"""The reference pages, each generated from what declares its subject: nothing in them is typed by hand twice."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Final

from api.cli import settings
from api.cli.serve_table import ServeTable
from api.dev_issuer.issuer import IssuerSettings
from api.http.quota_terms import QuotaTerms
from client.profile import profile
from ledger.wire.json_schema import json_schema
from policy.documents.json_schemas import KINDS, schema_of
from tests.api.wire import openapi_build
from tests.documentation.json_schema_tables import field_table, kind_of
from tests.epsilon_ledger.commands import leaves, root
from trainer_adapter.job.job_schema import job_schema

PUBLIC_PYTHON: Final = {
    "epsilon_ledger.local": ("attach", "read_table", "LocalRun", "LocalRefused"),
    "trainer_adapter": ("attach", "Options", "ModelRun", "Run", "Assignment"),
    "trainer_adapter.integrations.opacus": ("register", "make_private"),
    "trainer_adapter.integrations.lightning": ("LedgerCallback",),
    "trainer_adapter.integrations.transformers": ("LedgerTrainerCallback",),
    "trainer_adapter.integrations.mlflow": ("PublicLog",),
}
"""What the rooms' pages name as public, and nothing else."""


def commands_page() -> str:
    """Every command: what it does, how it is called, options with their help, examples."""
    return (
        "\n\n".join(["# Command line", _plain(root().help or ""), *map(_command, *zip(*leaves(), strict=True))]) + "\n"
    )


def _command(names: tuple[str, ...], command: Any) -> str:  # noqa: ANN401 - typer's own command, without public type
    called = [one for one in command.params if not getattr(one, "hidden", False)]
    places = [_place(one) for one in called if one.param_type_name == "argument"]
    usage = " ".join(["epsilon", *names, "[OPTIONS]", *places])
    rows = [f"| `{_cell(_written(one))}` | {_cell(_plain(one.help or ''))} |" for one in called]
    table = "\n".join(["| argument or option | meaning |", "|---|---|", *rows])
    examples = "\n".join(re.findall(r"^  (\S.*)$", command.epilog or "", re.MULTILINE))
    name = f"## `epsilon {' '.join(names)}`"
    return "\n\n".join((name, _plain(command.help or ""), _fenced("text", usage), table, _fenced("sh", examples)))


def _place(argument: Any) -> str:  # noqa: ANN401 - as above
    name = f"{argument.metavar or argument.name.upper()}{'' if argument.nargs == 1 else '...'}"
    return name if argument.required else f"[{name}]"


def _written(parameter: Any) -> str:  # noqa: ANN401 - as above
    if parameter.param_type_name == "argument":
        return _place(parameter)
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value


def http_page() -> str:
    """Every operation of the HTTP API: parameters, body, answer and problems."""
    document = json.loads(openapi_build.document_bytes())
    parts = [
        "# HTTP API",
        "The service answers with the same document at `/v1/openapi.json`, with examples at `/docs`.",
    ]
    for tag in document["tags"]:
        parts += [f"## {tag['name']}", tag["description"]]
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag["name"]]:
                    parts += _operation(path, method, operation)
    return "\n\n".join(parts) + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield f"**{operation['summary']}.** {operation.get('description', '')}"
    token = "needs an access token" if operation["security"] else "public"
    body = operation.get("requestBody", {}).get("content", {})
    reported = [f"`{operation['operationId']}`", token]
    reported += [f"body: {kind_of(one['schema'], {}, _schema_link)}" for one in body.values() if "schema" in one]
    for status, answer in operation["responses"].items():
        if status < "400":
            kinds = [
                kind_of(one["schema"], {}, _schema_link)
                for one in answer.get("content", {}).values()
                if "schema" in one
            ]
            reported.append(f"{status}: {', '.join(kinds) or answer.get('description', 'no body')}")
    reported.append("problems: " + ", ".join(status for status in operation["responses"] if status >= "400"))
    yield "\n".join(f"- {one}" for one in reported)
    if operation.get("parameters"):
        rows = ["| parameter | in | value | needed | meaning |", "|---|---|---|---|---|"]
        rows += [
            f"| `{one['name']}` | {one['in']} | {_cell(kind_of(one['schema'], {}, _schema_link))} "
            f"| {'yes' if one.get('required') else ''} | {_cell(one.get('description', ''))} |"
            for one in operation["parameters"]
        ]
        yield "\n".join(rows)


def http_records_page() -> str:
    """The records of the HTTP API, by name."""
    schemas = json.loads(openapi_build.document_bytes())["components"]["schemas"]
    parts = ["# Records of the HTTP API", "What requests and answers hold. All are JSON objects without other fields."]
    for name, schema in schemas.items():
        parts += [
            f"## {name}",
            schema.get("description", ""),
            field_table(schema, lambda other: f"[{other}](#{other.lower()})"),
        ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _schema_link(name: str) -> str:
    return f"[{name}](http_records.md#{name.lower()})"


def python_page() -> str:
    """The public names of the packages, with their docstrings."""
    parts = ["# Python"]
    for module, names in PUBLIC_PYTHON.items():
        parts.append(f"## {module}")
        for name in names:
            kind = "autoclass" if name[0].isupper() else "autofunction"
            members = "   :members:\n" if kind == "autoclass" else ""
            parts.append(f"```{{eval-rst}}\n.. {kind}:: {module}.{name}\n{members}```")
    return "\n\n".join(parts) + "\n"


def job_page() -> str:
    """The fields of a job."""
    return (
        "# Job\n\nA job is a TOML file; [Jobs](../jobs.md) explains it. Generated from the schema that "
        "`epsilon job schema` prints.\n\n" + field_table(job_schema()) + "\n"
    )


def policy_page() -> str:
    """The fields of a policy and the other documents."""
    parts = [
        "# Policy and other documents",
        "YAML, checked by `epsilon document check`. Generated from the published schemas.",
    ]
    for kind, (title, record) in KINDS.items():
        parts += [f"## {kind}", f"{title}.", _prose(inspect.getdoc(record) or ""), field_table(schema_of(kind))]
    return "\n\n".join(parts) + "\n"


def profile_page() -> str:
    """The tables of a profile."""
    tables = [("[client] of an organisation", profile.Party), ("[client] of a person", profile.Person)]
    parts = ["# Profile", _prose(inspect.getdoc(profile) or "")]
    for title, record in tables:
        parts += [f"## {title}", field_table(json_schema(record))]
    parts += ["## [serve]", _prose(inspect.getdoc(settings) or ""), field_table(json_schema(ServeTable))]
    parts += ["## [serve.quotas]", _attribute_table(QuotaTerms)]
    parts += ["## [issuer]", _prose(inspect.getdoc(IssuerSettings) or ""), field_table(json_schema(IssuerSettings))]
    return "\n\n".join(parts) + "\n"


def _attribute_table(kind: type[QuotaTerms]) -> str:
    """The fields of a dataclass with what holds without them, and what its docstring says of each."""
    meaning = dict(re.findall(r"^    (\w+): (.*)$", inspect.getdoc(kind) or "", re.MULTILINE))
    rows = [f"| `{one.name}` | {one.default} | {meaning[one.name]} |" for one in dataclasses.fields(kind)]
    return "\n".join(["| field | without it | meaning |", "|---|---|---|", *rows])


PAGES: Final[dict[str, Callable[[], str]]] = {
    "cli": commands_page,
    "http": http_page,
    "http_records": http_records_page,
    "python": python_page,
    "job": job_page,
    "profile": profile_page,
    "policy": policy_page,
}


def _plain(help_text: str) -> str:
    """Help as typer holds it, without what only a terminal shows."""
    return re.sub(r"\[/?[a-z ]+\]", "", " ".join(help_text.split())).replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _prose(docstring: str) -> str:
    """A docstring as Markdown: double backticks are code, paragraphs that are indented are TOML."""
    text: list[str] = []
    docstring = re.sub(r":[a-z]+:`~?([\w.]+)`", r"`\1`", docstring)
    for is_code, paragraphs in groupby(docstring.split("\n\n"), lambda one: one.startswith("    ")):
        whole = "\n\n".join(paragraphs)
        text.append(_fenced("toml", textwrap.dedent(whole)) if is_code else whole.replace("``", "`"))
    return "\n\n".join(text)
