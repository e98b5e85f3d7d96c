"""The registry of commands: what every kind must have, and what reading a command must not load."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from msgspec import structs

from ledger.commands.registry import CLIENT_KINDS, KINDS
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.settlement import POST, VOID
from ledger.domain.gate import Request
from ledger.domain.memory_state import MemoryState
from ledger.domain.roles import CCR, FIRST, ORGANISATION_ROLES
from ledger.wire.malformed import Malformed
from policy.decisions.gate import gate
from tests.factories.memory import PermissiveWorld
from tests.factories.people import BANKS


def _void(world: PermissiveWorld) -> Request:
    pending = world.pending("void", "void-1", BANKS[0], {"charge": "run-1"})
    return Request(pending.command, pending.body, world.clock.now)


def test_every_kind_that_clients_send_has_a_path_of_its_own_and_roles() -> None:
    """A lapse is the book's own: it has neither."""
    assert set(KINDS) - set(CLIENT_KINDS) == {"lapse", "log_key_rotation", "log_key_suspension", "statement"}
    assert not KINDS["lapse"].roles
    assert len({kind.path for kind in CLIENT_KINDS.values()}) == len(CLIENT_KINDS)
    for kind in CLIENT_KINDS.values():
        assert kind.path.startswith("/v1/")
        assert set(kind.roles) <= {*ORGANISATION_ROLES, CCR, FIRST}
        assert kind.roles


def test_an_entry_changes_the_state_in_one_way() -> None:
    """By ``apply``, an edit of the lineage or, of runs, an effect that another process may read; or the log alone."""
    ways = {name: [kind.apply, kind.edit, kind.effect].count(None) for name, kind in KINDS.items()}
    assert {name: none for name, none in ways.items() if none != 2} == {"model_release": 3}


def test_a_kind_takes_no_other_kind_s_command() -> None:
    """Neither to read it nor to decide it."""
    world = PermissiveWorld.settled()
    void = world.pending("void", "void-1", BANKS[0], {"charge": "run-1"})
    with pytest.raises(Malformed, match="kind: must be 'post', not 'void'"):
        POST.read_body(void.command)
    with pytest.raises(TypeError, match="a charge command cannot hold a Settle"):
        CHARGE.context(world.state, void, world.clock.now, world.index, world.gate)
    assert VOID.context(world.state, void, world.clock.now, world.index, world.gate).body.charge == "run-1"


def test_the_policy_has_a_verdict_on_every_kind_and_denies_every_other() -> None:
    """Deny by default: a kind that the policy does not know is denied, whatever it holds."""
    request = _void(PermissiveWorld.settled())
    for kind in KINDS:
        verdict = gate(replace(request, command=structs.replace(request.command, kind=kind)), MemoryState())
        assert not verdict.permit
        assert "kind_unknown" not in {check.code for check in verdict.checks}
    verdict = gate(replace(request, command=structs.replace(request.command, kind="remark")), MemoryState())
    assert not verdict.permit
    assert [check.code for check in verdict.checks] == ["kind_unknown"]


def test_reading_commands_loads_no_library_of_floats() -> None:
    """Clients and clean rooms import bodies of commands: that costs them no accountant."""
    loaded = "import sys, ledger.commands.registry; print({'dp_accounting', 'numpy', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
