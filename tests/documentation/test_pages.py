"""The pages on data and jobs: commands are run, or parse where they ask a service; the program reads their files."""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Final

import jsonschema
import pytest
from typer.testing import CliRunner

from api.http.quota_terms import QuotaTerms
from epsilon_ledger.__main__ import assemble
from tests.documentation.fenced_blocks import ROOT, Block, blocks
from tests.epsilon_ledger.commands import parsed
from trainer_adapter.job.job_schema import job_schema
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.privacy_target import PrivacyTarget

HERE: Final = "tests/documentation/test_pages.py"
DATA: Final = "data-format.md"
JOBS: Final = "jobs.md"
PATIENTS: Final = "patient,age,sex,weight,diagnosis\n" + "".join(
    f"p{one},{20 + one},{'fm'[one % 2]},{50 + one if one else ''},{'BM'[one % 2]}\n" for one in range(40)
)


def _blocks(page: str, language: str) -> list[Block]:
    return [one for one in blocks(ROOT / "docs" / page) if (one.run_by, one.language) == (HERE, language)]


def _lines(page: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for block in _blocks(page, "sh") for line in block.text.splitlines()]


@pytest.mark.parametrize("page", [DATA, JOBS])
def test_each_command_of_a_page_is_one(page: str) -> None:
    """With the options that it has; the guides and the quick start run those that ask a service."""
    assert _lines(page)
    for words in _lines(page):
        named = tuple(words[:2])
        assert parsed(words) in {named, named[:1]}


def test_a_table_is_sealed_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the page's command, its text columns left out, and by its schema, as it stands."""
    monkeypatch.chdir(tmp_path)
    (schema,) = _blocks(DATA, "toml")
    seal, *_ = _lines(DATA)
    (join,) = (words for words in _lines(DATA) if "--join" in words)
    Path("vaccinations.csv").write_text("phone,doses\n98450,2\n98451,1\n")
    done = CliRunner().invoke(assemble(), join)
    assert done.exit_code == 0, done.output
    Path("patients.csv").write_text("\n".join(["age,weight,diagnosis", *(f"1,2,{'BM'[one % 2]}" for one in range(9))]))
    done = CliRunner().invoke(assemble(), seal)
    assert done.exit_code == 0, done.output
    Path("schema.toml").write_text(schema.text)
    Path("patients.csv").write_text(PATIENTS)
    done = CliRunner().invoke(assemble(), [*seal[:4], "--schema", "schema.toml", "--out", "by-schema"])
    assert done.exit_code == 0, done.output
    for folder in ("2026", "by-schema"):
        report = json.loads((tmp_path / folder / "secret" / "report.json").read_text())
        assert report
        assert (tmp_path / folder / "share" / "records.sealed").is_file()


def test_the_job_of_the_page_is_one(tmp_path: Path) -> None:
    """In form; for the reader of jobs with the noise stated; and its ε is one that the planner takes."""
    by_epsilon, plan = (block.text for block in _blocks(JOBS, "toml"))
    head, _, _ = by_epsilon.partition("[train.privacy]")
    for text in (by_epsilon, head + plan):
        jsonschema.validate(tomllib.loads(text), job_schema())
    assert PrivacyTarget.parse(tomllib.loads(by_epsilon)["train"]["privacy"], "privacy").steps == 200
    shutil.copy(ROOT / "docs" / "example" / "bank-a.toml", tmp_path)
    (tmp_path / "contract.json").write_bytes((ROOT / "docs" / "example" / "contract.yaml").read_bytes())
    (tmp_path / "job.toml").write_text(head + plan)
    assert Job.load(tmp_path / "job.toml").plan.steps == 20


def test_the_quotas_of_the_page_are_the_service_s() -> None:
    """Each is read, none is missing, and each is what holds without a line."""
    (table,) = _blocks("quotas.md", "toml")
    quotas = tomllib.loads(table.text)["serve"]["quotas"]
    assert QuotaTerms.parse(quotas, "serve.quotas") == QuotaTerms.parse({}, "serve.quotas")
    assert list(quotas) == [field.name for field in dataclasses.fields(QuotaTerms)]
