"""On a book with organisations and nothing else: each empty list names the command that comes next, in each role."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import httpx
import pytest
import typer.main

from api.console.frame.next_commands import FIRST, NOT_ON_RECORD, every_command, next_command
from api.console.view_list import PAGES
from client.keys.signer import Signer
from epsilon_ledger.__main__ import assemble
from tests.api.console.visitors import ANYONE, visitors
from tests.factories.people import AUDITOR, BANK_A, HOSPITAL, SRO, TSO
from tests.factories.service import open_world

_EMPTY: Final = re.compile(r'<p class="empty">(?P<words>[^<]+)</p>(?P<after>.{0,400})', re.DOTALL)
_COMMAND: Final = re.compile(r'<(?:pre|code) class="command">([^<]+)</(?:pre|code)>')
_ROLES: Final = {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC"}


@pytest.fixture(scope="module")
def newcomers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, httpx.Client]]:
    """A browser of each role; there is no policy, no dataset, no contract and no run."""
    with open_world(tmp_path_factory.mktemp("empty")) as world:
        world.everybody.roles |= _ROLES
        founding = world.founding_with(roles=_ROLES)
        for _ in _ROLES:
            world.found(next(founding))
        for did, role in ((TSO, "TSO"), (AUDITOR, "AUDITOR")):
            world.register(did, role, Signer.generate())
        with visitors(world) as browsers:
            yield browsers


def test_every_empty_list_names_the_next_command(newcomers: Mapping[str, httpx.Client]) -> None:
    """On all pages that need no id, in every role that may open them; none is blank."""
    lists = 0
    for page in PAGES:
        if "{" in page.path or page.path.endswith(".json"):
            continue
        for role, http in newcomers.items():
            answer = http.get(f"/console{page.path}")
            if answer.status_code != 200:
                continue
            assert "</main>" in answer.text, page.path
            for found in _EMPTY.finditer(answer.text):
                shown = _COMMAND.search(found["after"])
                assert shown is not None, (page.path, role, found["words"])
                assert shown[1].replace("&gt;", ">") in every_command() | {_ISSUERS}, (page.path, shown[1])
                lists += 1
    assert lists > 40


_ISSUERS: Final = """[serve.console]
client_id = "epsilon-console"
issuers = ["https://login.example"]"""


def test_a_command_is_of_the_reader_s_own_role(newcomers: Mapping[str, httpx.Client]) -> None:
    """A provider is not shown what only a consumer signs, nor the other way round."""
    for role, profile in (("TDP", "tdp.toml"), ("TDC", "job.toml"), ("SRO", "sro.toml")):
        text = newcomers[role].get("/console/runs").text
        (command,) = _COMMAND.findall(text)
        assert profile in command or command == FIRST[role], (role, command)
        assert f"as {role}" in text
    assert NOT_ON_RECORD in newcomers[ANYONE].get("/console/register").text
    assert next_command("runs", ["AUDITOR", "TDC"]).role == "TDC"
    assert next_command("no such list", []).text == NOT_ON_RECORD


@cache
def _whole_program() -> Any:  # noqa: ANN401 - typer's own classes of commands
    return typer.main.get_command(assemble(None))


@pytest.mark.parametrize("command", sorted(every_command()))
def test_a_command_that_is_shown_is_one_that_there_is(command: str) -> None:
    """With the options that it takes; what it would do is not run."""
    program, *words = shlex.split(command.partition(" > ")[0])
    assert program == "epsilon"
    found = _whole_program()
    context = typer.Context(found)
    while hasattr(found, "get_command"):
        one = found.get_command(context, words[0])
        assert one is not None, words
        found, words = one, words[1:]
        context = typer.Context(found, info_name=command)
    values, left, _ = found.make_parser(context).parse_args([*words])
    assert left == []
    assert {one.name for one in found.params if one.required} <= {name for name, value in values.items() if value}
