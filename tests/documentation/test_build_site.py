"""What the site is built of: every page, the reference of what the program declares, and nothing from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from api.cli.serve_table import LEFT_OUT, NEEDED
from tests.documentation import build_site
from tests.documentation.fenced_blocks import pages
from tests.documentation.json_schema_tables import field_table
from tests.documentation.reference_pages import commands_page, job_page, policy_page, profile_page
from tests.epsilon_ledger.commands import leaves
from trainer_adapter.job.job_schema import job_schema


def test_every_page_is_in_one_list_of_the_index() -> None:
    """None is forgotten, and none listed twice."""
    index = (build_site.ROOT / build_site.INDEX).read_text(encoding="utf-8")
    listed = re.findall(r"^[a-z./A-Z_-]+\.md$", "\n".join(build_site.tree_of(index, ())), re.MULTILINE)
    found = [(build_site.ROOT / "docs" / one).resolve() for one in listed]
    assert len(set(found)) == len(found)
    assert set(found) == set(pages()) - {build_site.ROOT / build_site.INDEX}, "name each page in docs/index.md"
    assert {page for page in pages() if page.suffix == ".md"} <= {
        build_site.ROOT / one for one in build_site.page_files()
    }


def test_what_a_page_would_load_from_elsewhere_is_found(tmp_path: Path) -> None:
    """Scripts, pictures and fonts; a link that a reader may follow is none."""
    (tmp_path / "a.html").write_text('<a href="https://one.example">1</a><script async src="https://two.example/x.js">')
    (tmp_path / "b.html").write_text('<link rel="stylesheet" href="_static/x.css"><img src="x.svg">')
    (tmp_path / "c.css").write_text("@font-face { src: url(//three.example/font.woff2) } a { background: url(x.svg) }")
    assert [one.partition(":")[0] for one in build_site.foreign(tmp_path)] == ["a.html", "c.css"]


def test_the_font_is_the_one_that_was_vendored() -> None:
    """Each file by its digest, named by the style sheet; the licence lies beside them."""
    fonts = build_site.ROOT / "docs" / "fonts"
    digests = json.loads((fonts / "vendored.json").read_text(encoding="utf-8"))["files"]
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in fonts.glob("*.woff2")} == digests
    named = re.findall(r'url\("([^"]+)"\)', (fonts / "fonts.css").read_text(encoding="utf-8"))
    assert sorted(named) == sorted(digests)
    assert "SIL Open Font License" in (fonts / "LICENSE").read_text(encoding="utf-8")


def test_the_reference_names_all_that_is_declared() -> None:
    """Commands with their options, fields of a job, a policy and a profile."""
    page = commands_page()
    for names, command in leaves():
        assert f"## `epsilon {' '.join(names)}`" in page
        shown = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
        assert all(option.opts[0] in page for option in shown)
    job = job_page()
    assert all(f"| `train.{name}`" in job for name in job_schema()["properties"]["train"]["properties"])
    assert "| `attestation.attesters[].issuer`" in policy_page()
    page = profile_page()
    assert all(re.search(rf"^\| `{name}` \|.*\| yes \|", page, re.MULTILINE) for name in NEEDED)
    assert all(re.search(rf"^\| `{name}` \|.*\|  \| \S", page, re.MULTILINE) for name in LEFT_OUT)
    rows = re.findall(r"^\| `.*\|(.*)\|$", page, re.MULTILINE)
    assert len(rows) > 40
    assert all(meaning.strip() for meaning in rows)


def test_a_schema_becomes_a_table() -> None:
    """Nested objects by dotted names, lists and alternatives among them; a pipe is no end of a cell."""
    name = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^a|b$"}}, "required": ["x"]}
    schema = {
        "type": "object",
        "properties": {"many": {"type": "array", "items": name, "maxItems": 3}, "n": {"const": 1}},
    }
    assert field_table(schema).splitlines()[2:] == [
        "| `many` | list of table, at most 3 |  |  |",
        "| `many[].x` | text, `^a\\|b$` | yes |  |",
        "| `n` | `1` |  |  |",
    ]
