"""Documents checked before anybody signs them, and their schemas, on the command line."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ledger.wire.canonical_json import digest, dump
from policy.cli.documents import app
from policy.documents.json_schemas import KINDS, schema_of
from tests.policy.documents.complete import FULL

RUN = CliRunner()


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_document_is_named_with_its_digest(kind: str, tmp_path: Path) -> None:
    """Whatever its kind and spelling; YAML and JSON have one canonical digest."""
    told = []
    for name, data in (("a.json", dump(FULL[kind])), ("a.yaml", yaml.safe_dump(FULL[kind]).encode())):
        (tmp_path / name).write_bytes(data)
        done = RUN.invoke(app, ["document", "check", str(tmp_path / name), "--json"])
        assert done.exit_code == 0
        told.append(json.loads(done.output))
        assert told[-1]["document"] == digest(data)
    assert {one["canonical"] for one in told} == {digest(dump(FULL[kind]))}
    assert {one["kind"] for one in told} == {kind}


def test_a_fault_tells_where_it_is(tmp_path: Path) -> None:
    """In a sentence with line and column, and with the exit code of malformed input."""
    (tmp_path / "p.yaml").write_text("kind: policy\nv: 1\nlevels: no\n")
    done = RUN.invoke(app, ["document", "check", str(tmp_path / "p.yaml")])
    assert done.exit_code == 2
    assert "levels: 'no' means different things" in done.output
    assert "(line 3, column 9)" in done.output
    (tmp_path / "p.yaml").write_text("kind: plan\n")
    done = RUN.invoke(app, ["document", "check", str(tmp_path / "p.yaml"), "--json"])
    assert (done.exit_code, json.loads(done.output)["field"]) == (2, "kind")
    assert RUN.invoke(app, ["document", "check", str(tmp_path / "none.yaml")]).exit_code == 4


def test_a_schema_is_written_out() -> None:
    """Of a known kind alone."""
    done = RUN.invoke(app, ["document", "schema", "contract"])
    assert json.loads(done.output) == schema_of("contract")
    assert RUN.invoke(app, ["document", "schema", "plan"]).exit_code == 2
