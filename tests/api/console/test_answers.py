"""Pages against the API: what a page shows of an account, a plan, a draft or the register is what the API answers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from api.console.frame.cells import moment
from api.console.views.public.public_results import RESULTS
from api.routes.overviews import register
from ledger.store.tables import SCHEMA_REVISION
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.checks.calendar_periods import period_before, period_of
from policy.checks.field_readers import format_time
from policy.documents.partition_commitments import MAGIC
from policy.documents.slice_budget import slice_budget
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses, proposal
from tests.api.console.test_pages import FORBIDDEN
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.documentation.fenced_blocks import ROOT
from tests.factories.documents import contract, dataset, partition, plan, stream
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import PLAN, ServedWorld, founded_world

PUBLIC: Final[list[c.Json]] = ["budget", "level", "runs", "spent", "unit"]


def _rows(http: httpx.Client, address: str, table: str) -> list[dict[str, str]]:
    """A table of a page, by its columns."""
    mark = "&" if "?" in address else "?"
    text = http.get(f"{address}{mark}csv={table}").raise_for_status().content.decode("utf-8-sig")
    return [*csv.DictReader(io.StringIO(text))]


@pytest.mark.parametrize("role", ["TDP", "TDC", "AUDITOR"])
def test_an_account_is_shown_as_the_api_shows_it(looked: Looked, role: str) -> None:
    """ε with its δ and its bound, share, what binds and the runs left, to a consumer rounded up as there."""
    pairs = looked.pairs
    ref = pairs.own.partition
    answer = pairs.world.http.get("/v1/accounts", params={"partition": ref}, headers=pairs.people[role].shown).json()
    by_holder: dict[str, Any] = {one["holder"]: one for one in answer["items"]}
    rows = _rows(looked.browsers[role], f"/console/partitions/{ref}", "accounts")
    assert rows[0]["Whose"] == "global"
    assert len(rows) == (2 if role == "TDC" else 1)
    for row in rows:
        known = by_holder[row["Whose"]]
        assert row["ε so far"] == known["odometer"].rstrip("0").rstrip(".")
        assert (row["at δ"], row["Proven by"]) == (answer["budget"]["delta"], known["bound"])
        assert row["Of what binds"] == known["binding"]
        assert row["Runs left"] == str(known["runs_like_the_last"])


def test_the_planner_answers_as_the_api_does(looked: Looked) -> None:
    """Its checks, the run's ε and what fits."""
    pairs, own = looked.pairs, looked.pairs.own
    asked: c.Object = {
        "contract": own.contract,
        "partitions": [own.partition],
        "plan": {**PLAN, "noise_multiplier": "4"},
    }
    headers = {**pairs.people["TDC"].shown, "content-type": "application/json"}
    answer = pairs.world.http.post("/v1/plans", content=c.dump(asked), headers=headers).json()
    plan: Any = asked["plan"]
    given = {"noise": "4", "partition": own.partition, "contract": own.contract, "steps": str(plan["steps"])}
    query = httpx.QueryParams({**given, "probability": plan["sampler"]["probability"]})
    address = f"/console/planner?{query}"
    rows = _rows(looked.browsers["TDC"], address, "checks")
    assert [(row["Code"], row["Result"]) for row in rows] == [
        (one["code"], "passed" if one["passed"] else "failed") for one in answer["decision"]["checks"]
    ]
    (line,) = _rows(looked.browsers["TDC"], address, "epsilon")
    assert line["ε"] == answer["run_epsilon"][0]["epsilon"]
    assert str(answer["steps_most"]["steps"]) in looked.browsers["TDC"].get(address).text


def test_the_planner_finds_steps_for_epochs_and_noise_for_an_epsilon(looked: Looked) -> None:
    """The least noise to four decimals with which so many epochs keep it; what cannot be kept says so."""
    own, http = looked.pairs.own, looked.browsers["TDC"]
    given = {"partition": own.partition, "contract": own.contract, "probability": "0.05", "epochs": "10"}
    address = f"/console/planner?{httpx.QueryParams({**given, 'epsilon': '0.5'})}"
    (line,) = _rows(http, address, "epsilon")
    assert 0.49 < float(line["ε"]) <= 0.5
    assert re.search(r'name="steps" value="200"', http.get(address).text)
    for wrong in ({"epsilon": "x"}, {"epsilon": "-1"}, {"epochs": "99999999999"}, {"probability": "1.5"}):
        text = http.get(f"/console/planner?{httpx.QueryParams({**given, **wrong})}").text
        assert 'class="problem"' in text, wrong


def test_the_planner_takes_records_of_a_step_for_its_probability(looked: Looked) -> None:
    """So many of the partition's thousand, on average."""
    own, http = looked.pairs.own, looked.browsers["TDC"]
    asked = {"partition": own.partition, "contract": own.contract, "noise": "2", "steps": "100"}
    with looked.pairs.world.book.read() as facts:
        records = facts.partitions[own.partition].records
    by_batch = f"/console/planner?{httpx.QueryParams({**asked, 'batch': str(records // 20)})}"
    by_probability = f"/console/planner?{httpx.QueryParams({**asked, 'probability': '0.05'})}"
    assert _rows(http, by_batch, "epsilon") == _rows(http, by_probability, "epsilon")
    assert 'name="probability" value="0.05"' in http.get(by_batch).text
    for wrong in (str(records + 1), "0", "x"):
        text = http.get(f"/console/planner?{httpx.QueryParams({**asked, 'batch': wrong})}").text
        assert 'class="problem"' in text, wrong


def test_a_decision_names_the_policy_that_bound_it(looked: Looked) -> None:
    """By its version, with the page of the policy for those who may open it."""
    page = looked.browsers["SRO"].get(addresses(looked.pairs)["/decisions/{id}"]).text
    assert re.search(
        r"<dt>Policy of health in force</dt><dd><a href=\"/console/policies/health\"><bdi>version 1</bdi>", page
    )
    assert (
        f'href="/console/decisions/{looked.pairs.own.run}"'
        in looked.browsers["SRO"].get(f"/console/runs/{looked.pairs.own.run}").text
    )


def test_what_models_reached_on_public_data_is_what_was_measured(looked: Looked) -> None:
    """The means of the runs that are written down, by data and ε; and the planner shows them with an answer."""
    lines = (ROOT / "docs" / "training.jsonl").read_text("utf-8").splitlines()
    found: dict[tuple[str, str], list[float]] = {}
    for run in map(json.loads, lines):
        found.setdefault((run["data"], run["epsilon"]), []).append(run["accuracy"])
    names = {"adult": "Adult (census)", "fashion-mnist": "Fashion-MNIST", "mnist": "MNIST"}
    measured = {(names[data], epsilon): sum(values) / len(values) for (data, epsilon), values in found.items()}
    shown = {(one.data, format_number(one.epsilon)): float(one.right) for one in RESULTS}
    assert shown == pytest.approx(measured, abs=1e-5)
    assert {one.runs for one in RESULTS} == {len(values) for values in found.values()}
    rows = _rows(looked.browsers["TDC"], addresses(looked.pairs)["/planner"], "public")
    assert [row["Public data"] for row in rows] == ["Adult (census)", "MNIST", "Fashion-MNIST", "MNIST"]


def test_operations_are_those_of_the_book(looked: Looked) -> None:
    """Its schema, the oldest pending run by its entry, and a queue in which nothing waits."""
    world = looked.pairs.world
    rows = {row["What"]: row["Value"] for row in _rows(looked.browsers["OPERATOR"], "/console/operations", "state")}
    with world.book.read() as facts:
        first = min(charge.index for charge in facts.pending_charges())
        charged = moment(facts.times([first])[first]).exact
    assert rows["Oldest of the runs that are pending"] == charged
    assert rows["Schema of the book"] == SCHEMA_REVISION
    assert (rows["Commands that wait to be decided"], rows["Entries"]) == ("0", str(world.size))
    assert rows["Witnesses of the newest checkpoint"] == "none"


@pytest.mark.parametrize("page", ["/log", "/decisions"])
def test_entries_are_filtered_by_kind_outcome_and_actor(looked: Looked, page: str) -> None:
    """Alike on both pages that list them."""
    http, table = looked.browsers["SRO"], {"/log": "entries", "/decisions": "decisions"}[page]
    rows = _rows(http, f"/console{page}?kind=charge&outcome=permitted&actor={BANK_A}", table)
    assert {(row["Kind"], row["By"]) for row in rows} == {("charge", rows[0]["By"])}
    assert [row["Id"] for row in rows] == ["run-3", "run-1"]
    assert _rows(http, f"/console{page}?kind=policy&outcome=refused", table) == []


@pytest.mark.parametrize(("role", "charge"), [("SRO", "run-1"), ("TDP", "run-3"), ("TDC", "run-1"), ("TDC", "run-3")])
def test_a_permit_has_every_check_with_its_numbers(looked: Looked, role: str, charge: str) -> None:
    """Those that the API decides again, on a page that the decision leads to; none failed, so none binds."""
    pairs, http = looked.pairs, looked.browsers[role]
    answer = pairs.world.http.get(f"/v1/decisions/{charge}/checks", headers=pairs.people[role].shown).json()
    rows = _rows(http, f"/console/decisions/{charge}/checks", "checks")
    assert [(row["Code"], row["What was compared"]) for row in rows] == [
        (one["code"], one["text"]) for one in answer["checks"]
    ]
    assert {row["Result"] for row in rows} == {"passed"}
    assert len(rows) > 10
    assert f'href="/console/decisions/{charge}/checks"' in http.get(f"/console/decisions/{charge}").text
    assert "Nothing binds" in http.get(f"/console/decisions/{charge}/checks").text


def test_a_contract_waits_on_the_first_page_of_who_is_to_sign_it(looked: Looked) -> None:
    """And of no one else; its page has what it changes, what could run under it, and the bytes that are signed."""
    data = proposal(looked.pairs.world)
    at = f"/console/contract-proposals/{c.digest(data)}"
    waiting = {role: at in looked.browsers[role].get("/console/").text for role in ("SRO", "TDP", "TDC", "AUDITOR")}
    assert waiting == {"SRO": True, "TDP": True, "TDC": False, "AUDITOR": False}
    listed = {role: at in looked.browsers[role].get("/console/contracts").text for role in ("TDP", "TDC", "AUDITOR")}
    assert listed == {"TDP": True, "TDC": True, "AUDITOR": False}
    http = looked.browsers["TDP"]
    assert http.get(f"{at}/bytes").content == data
    fields = {row["Field"]: row for row in _rows(http, at, "fields")}
    assert (fields["version"]["proposed version 2"], fields["version"]["version 1"]) == ("2", "1")
    assert fields["run.epsilon_max"]["version 1"] == "1" != fields["run.epsilon_max"]["proposed version 2"]
    assert _rows(http, at, "caps")
    assert "epsilon contract enter" in http.get(at).text
    assert looked.browsers["TDP"].get(f"/console/contract-proposals/{'0' * 64}").status_code == 404


class Council(NamedTuple):
    """A world, its issuer, and the regulator's browser in it."""

    world: ServedWorld
    issuer: str
    http: httpx.Client
    anyone: httpx.Client


@pytest.fixture
def council(tmp_path: Path) -> Iterator[Council]:
    """One of their own: what is published changes it."""
    with (
        founded_world(tmp_path) as world,
        world.issuing({"sro": PEOPLE["SRO"]}) as issuer,
        browser(world.url) as http,
        browser(world.url) as anyone,
    ):
        log_in(http, issuer, "sro")
        yield Council(world, issuer, http, anyone)


def _draft(world: ServedWorld, **changes: c.Json) -> c.Object:
    later = format_time(world.clock.now + 1_000)
    return {**world.policy(), "effective": later, "version": 2, **changes}


def test_a_draft_shows_what_it_would_change_and_changes_nothing(council: Council) -> None:
    """Before and after; without the form's own token, nothing is shown at all."""
    draft = c.dump(_draft(council.world, lineage={"epsilon_max": "0.5"})).decode()
    page = council.http.get("/console/policy-impact").text
    token = re.search(r'name="form_token" value="([\w-]+)"', page)
    assert token is not None
    size = council.world.size
    shown = council.http.post("/console/policy-impact", data={"document": draft, "form_token": token[1]})
    assert shown.status_code == 200
    assert "lineage_epsilon_max" in shown.text
    assert "epsilon policy publish" in shown.text
    assert [one for one in FORBIDDEN if one in shown.text.lower()] == []
    assert council.http.post("/console/policy-impact", data={"document": draft}).status_code == 403
    wrong = council.http.post("/console/policy-impact", data={"document": "kind: policy", "form_token": token[1]})
    assert (wrong.status_code, 'class="problem"' in wrong.text) == (200, True)
    assert council.world.size == size


def test_a_model_s_notice_is_counted_down(council: Council, looked: Looked) -> None:
    """By the notice of the policy in force; where that asks for none, it is over at once."""
    assert {row["May leave"] for row in _rows(looked.browsers["SRO"], "/console/models", "announced")} <= {
        row["Time"] for row in _rows(looked.browsers["SRO"], "/console/models", "announced")
    }
    assert "the notice is over" in looked.browsers["SRO"].get("/console/models").text
    world, room = council.world, CleanRoom()
    world.enter("policy", _draft(world, notice_hours=25), PEOPLE["SRO"].organisation, world.sro)
    world.clock.now += 2_000
    bank = PEOPLE["TDC"].organisation
    world.service.submit(world.bank, bank, "charge", world.charge_body(world.contract, room), "run-1")
    nonce = world.service.challenge("run-1")
    requested: c.Object = {"charge": "run-1", "evidence": world.attest(room, "run-1", nonce), "nonce": nonce}
    world.service.submit(room.signer, bank, "key_release", requested, "key-1")
    world.service.submit(room.signer, bank, "post", {"charge": "run-1", "steps": 100}, "post-1")
    world.service.submit(room.signer, bank, "release_notice", {"charge": "run-1", "model": "a" * 64}, "notice-1")
    for hours, words in ((0, "in 1 d 1 h"), (1, "in 1 d 0 h")):
        world.clock.now += hours * 3_600_000
        log_in(council.http, council.issuer, "sro")
        assert words in council.http.get("/console/models").text, hours


def test_nothing_is_public_before_a_policy_says_so(council: Council) -> None:
    """Then what it says, and no more; to a person and to a program alike."""
    world, anyone = council.world, council.anyone
    assert anyone.get("/console/register.json").json()["datasets"] == []
    world.enter("policy", _draft(world, register=["budget"]), PEOPLE["SRO"].organisation, world.sro)
    world.clock.now += 2_000
    (entry,) = anyone.get("/console/register.json").json()["datasets"]
    assert entry == {
        "dataset": "digits",
        "delta": "0.00001",
        "epsilon": "6",
        "policy": "policy health-policy version 2",
        "provider": HOSPITAL,
    }
    page = anyone.get("/console/register").text
    assert (page.count("not public"), HOSPITAL in page) == (4, True)


def test_an_epsilon_so_far_is_public_at_its_delta(council: Council) -> None:
    """Also where the budget is not public."""
    world = council.world
    world.enter("policy", _draft(world, register=["spent"]), PEOPLE["SRO"].organisation, world.sro)
    world.clock.now += 2_000
    (entry,) = council.anyone.get("/console/register.json").json()["datasets"]
    assert (entry["delta"], entry["spent"], "epsilon" in entry) == ("0.00001", "0.0000", False)


def test_of_more_partitions_than_are_looked_at_no_epsilon_is_public(
    council: Council, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be that of another one."""
    world = council.world
    world.enter("policy", _draft(world, register=PUBLIC), PEOPLE["SRO"].organisation, world.sro)
    world.clock.now += 2_000
    world.open_partition("more")
    monkeypatch.setattr(register, "PARTITIONS_MAX", 1)
    (entry,) = council.anyone.get("/console/register.json").json()["datasets"]
    assert [entry[name] for name in ("epsilon", "delta", "spent", "level")] == [None, None, None, 1]
    assert council.anyone.get("/console/register").text.count("not shown: more than 1 partitions") == 2


def test_all_that_may_be_public_is_rounded_up(council: Council) -> None:
    """The ε so far is everyone's odometer; the runs are those that were posted."""
    world = council.world
    world.enter("policy", _draft(world, register=PUBLIC), PEOPLE["SRO"].organisation, world.sro)
    world.clock.now += 2_000
    (entry,) = council.anyone.get("/console/register.json").json()["datasets"]
    assert (entry["level"], entry["runs"], entry["spent"]) == (1, 0, "0.0000")


def _open_two_slices(world: ServedWorld, bank: str) -> None:
    """Of a stream whose persons may be in two: one run on both."""
    world.enter("dataset", dataset(name="claims"), HOSPITAL, world.hospital)
    terms = stream(dataset="claims", appearances_max=2, persons="declared")
    world.enter("stream", terms, HOSPITAL, world.hospital)
    epsilon, delta = map(format_number, slice_budget(Fraction(6), Fraction("0.00001"), 2))
    current = period_of("week", world.clock.now)
    refs = []
    for period in (period_before("week", current), current):
        values = b"".join(sorted(sha256(f"{period} {number}".encode()).digest() for number in range(500)))
        stored = world.service.put_document(world.hospital, MAGIC + bytes(32) + values).document
        opened = partition(period, commitments=[stored], dataset="claims", epsilon=epsilon, delta=delta, records=500)
        world.service.submit(world.hospital, HOSPITAL, "partition", opened, f"slice-{period}")
        refs.append(f"{HOSPITAL}/claims/{period}")
    of_claims = [{"dataset": "claims", "provider": HOSPITAL}]
    agreed = contract(bank, starts=world.begun, id="claims", datasets=of_claims)
    world.contracts[bank] = world.enter("contract", agreed, bank, world.signers[bank], world.hospital)[0]
    (done,) = world.submit(world.charge("both", bank, plan(10, "8"), partitions=tuple(refs)))
    assert done.code.word == "pending", done


def test_a_person_of_several_slices_is_shown_the_sum_of_them(council: Council) -> None:
    """Budget and ε so far of all slices that it may be in together, as the stream's own report has them."""
    world, bank = council.world, PEOPLE["TDC"].organisation
    world.enter("policy", _draft(world, register=["budget", "spent"]), PEOPLE["SRO"].organisation, world.sro)
    world.clock.now += 2_000
    _open_two_slices(world, bank)
    found = council.anyone.get("/console/register.json").json()["datasets"]
    (entry,) = (one for one in found if one["dataset"] == "claims")
    shown = world.everybody.shown(bank)
    report = world.http.get(f"/v1/streams/{HOSPITAL}/claims", headers=shown).raise_for_status().json()
    assert (entry["epsilon"], entry["delta"]) == (report["budget_epsilon"], report["budget_delta"]) == ("6", "0.00001")
    each = [float(one["odometer"]) for one in report["slices"] if one["odometer"] is not None]
    assert entry["spent"] == report["odometer"]
    assert len(each) == 2
    assert float(entry["spent"]) == pytest.approx(sum(each), abs=2e-4)
    assert float(entry["spent"]) > max(each) > 0
