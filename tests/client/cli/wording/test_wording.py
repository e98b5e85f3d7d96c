"""What commands show to people: names first and ids once, dates, and more only if they ask."""

from __future__ import annotations

import json

from ledger.wire import canonical_json as c
from tests.factories.parties_walk import Desk
from tests.factories.people import BANK_A, HOSPITAL

REF = f"{HOSPITAL}/scans/2026-q4"


def test_an_outcome_begins_with_what_it_is_about(desk: Desk) -> None:
    """A document by its file, a partition by its reference."""
    (desk.folder / "other.yaml").write_text(
        (desk.folder / "dataset.yaml").read_text().replace("id: scans", "id: other")
    )
    entered = desk.run("epsilon dataset register hospital.toml other.yaml --dry-run")
    assert entered.out.startswith("dataset other.yaml: would be permitted"), entered.err
    size = desk.world.size
    requested = desk.run(f"epsilon dataset retire hospital.toml {REF} --dry-run")
    assert requested.out.startswith(f"retirement of {REF}: would be permitted"), requested.err
    assert desk.world.size == size


def test_a_charge_shows_its_digests_where_they_are_requested(desk: Desk) -> None:
    """And its dates as dates."""
    shown, whole = (desk.run(f"epsilon charge show bank-a.toml run-1 {more}").out for more in ("", "--verbose"))
    digest = c.digest((desk.folder / "contract.yaml").read_bytes())
    assert digest not in shown
    assert digest in whole
    assert all(BANK_A in one and "Z" in one for one in (shown, whole))


def test_commitments_under_another_key_are_refused_with_what_to_do(desk: Desk) -> None:
    """The provider seals again under the key of its other partitions."""
    (desk.folder / "other.csv").write_text("a,y\n" + "".join(f"{number},1\n" for number in range(150)))
    sealed = f"epsilon dataset seal other.csv {HOSPITAL}/scans/other --target y --out other --commitment-key other.key"
    assert desk.run(sealed).code == 0
    partition = json.loads((desk.folder / "partition.json").read_text())
    (desk.folder / "other.json").write_text(json.dumps(partition | {"partition": "other", "data_key": "other"}))
    opened = desk.run(
        "epsilon dataset open-partition hospital.toml other.json --commitments other/share/commitments-1.bin --dry-run"
    )
    assert opened.code == 3, opened
    assert "commitments_key_changed" in opened.err
    assert "--commitment-key" in opened.err.splitlines()[-1]


def test_organisations_are_shown_by_name(desk: Desk) -> None:
    """Each with its DID once; programs get the DIDs alone."""
    name = f"Bank A ({BANK_A})"
    for line in ("charge show bank-a.toml run-1", f"lineage show sro.toml {BANK_A}"):
        shown = desk.run(f"epsilon {line}").out
        assert name in shown, shown
        assert shown.count(BANK_A) == 1
        assert name not in desk.run(f"epsilon {line} --json").out
    split = desk.run(f"epsilon lineage split sro.toml {BANK_A} did:web:nobody.example --dry-run")
    assert split.code == 4, "what is not on record has no name"
    declared = desk.run(f"epsilon lineage declare sro.toml {BANK_A} {HOSPITAL} --epsilon 4 --dry-run")
    assert f"coalition of {name}, " in declared.out + declared.err, declared


def test_a_first_policy_is_shown_in_one_line(desk: Desk) -> None:
    """It changes nothing in force; --verbose lists what it says."""
    text = (desk.folder / "policy.yaml").read_text()
    (desk.folder / "first.yaml").write_text(text.replace("domain: health", "domain: traffic"))
    requested = "epsilon policy publish sro.toml first.yaml --dry-run"
    shown, whole = (desk.run(f"{requested} {more}").out for more in ("", "--verbose"))
    assert len(shown.splitlines()) == 1, shown
    assert "the first policy of its domain" in shown
    assert "traffic" in whole
    assert len(whole.splitlines()) > 20
    planned = desk.run("epsilon policy impact sro.toml first.yaml").out
    assert "none ->" not in planned
    assert "the first policy of its domain" in planned


def test_keys_are_shown_with_dates(desk: Desk) -> None:
    """Not in milliseconds; programs get them as before."""
    shown = desk.run(f"epsilon key show sro.toml {BANK_A}")
    (key,) = json.loads(desk.run(f"epsilon key show sro.toml {BANK_A} --json").out)
    assert str(key["since"]) not in shown.out
    assert "signs now" in shown.out
    assert key["key_id"] in shown.out


def test_a_number_of_records_below_the_commitments_is_a_warning(desk: Desk) -> None:
    """A lower bound is sound, and most likely another table's number."""
    table = "a,y\n" + "".join(f"{number},0\n" for number in range(150))
    (desk.folder / "table.csv").write_text(table)
    sealed = desk.run(f"epsilon dataset seal table.csv {HOSPITAL}/scans/few --target y --out few")
    assert '"records": 150' in sealed.out, sealed.err
    partition = json.loads((desk.folder / "partition.json").read_text()) | {"partition": "few", "data_key": "few"}
    for records, warned in ((149, True), (150, False)):
        (desk.folder / "few.json").write_text(json.dumps({**partition, "records": records}))
        opened = desk.run(
            "epsilon dataset open-partition hospital.toml few.json --commitments few/share/commitments-1.bin --dry-run"
        )
        assert opened.code == 0, opened.err
        assert opened.out.startswith(f"partition {HOSPITAL}/scans/few: would be permitted")
        assert ("Warning: few.json: records is 149" in opened.err) is warned
