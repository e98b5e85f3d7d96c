"""The first steps of three parties (docs/guides/three_parties.md), and commands beside them, against a served book."""

from __future__ import annotations

import json
import re
from typing import Any

from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from tests.factories.parties_walk import Desk, Ran
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom

REF = f"{HOSPITAL}/scans/2026-q4"
CONTRACT = "--contract contract.yaml --deadline 2026-12-02T00:00:00Z"


def _good(desk: Desk, line: str) -> Any:  # noqa: ANN401 - JSON
    """Run a command with --json; its answer."""
    ran = desk.run(f"{line} --json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert isinstance(answer, dict)
    return answer


def test_every_command_of_the_page_works(walk: tuple[Desk, list[Ran]]) -> None:
    """Each line ends with 0; what is sent is told on stdout, and a quote and a signature record nothing."""
    _, ran = walk
    assert [(one.line, one.err) for one in ran if one.code] == []
    entered = [one for one in ran if ", entry " in one.out]
    assert [one.line.split()[1:3] for one in entered] == [
        ["key", "register"],
        ["policy", "publish"],
        ["key", "register"],
        ["key", "register"],
        ["dataset", "register"],
        ["dataset", "open-partition"],
        ["contract", "enter"],
        ["charge", "make"],
    ]
    assert [re.split(r"[,\n]", one.out.split(", entry ")[1])[0] for one in entered] == [
        str(index) for index in range(8)
    ]
    assert all(word in ran[-1].out for word in (REF, "everyone", "Bank A", "1.8 %", "0.6187"))
    shown = "".join(one.out for one in ran if "--json" not in one.line)
    assert re.findall(r"lineage:[0-9]|Fraction\(|\b[0-9]{13}\b", shown) == []


def test_keys_are_private_and_never_replaced(desk: Desk) -> None:
    """Mode 0600, the public half on stdout, and a second key of the name is refused."""
    made = desk.run("epsilon key new other.pem")
    assert (made.code, json.loads(made.out)) == (0, Signer.load(desk.folder / "other.pem").jwk)
    again = desk.run("epsilon key new other.pem")
    assert (again.code, again.out) == (2, "")
    assert "other.pem: File exists" in again.err


def test_a_command_sent_again_is_the_same_command(desk: Desk) -> None:
    """The same id and body give the same entry, said to be recorded before; another body under it is in conflict."""
    line = f"epsilon charge make bank-a.toml run.json {CONTRACT} --id run-1"
    again = _good(desk, line)
    assert (again["repeated"], again["outcome"]) == (True, "pending")
    assert "recorded before" in desk.run(line).out
    other = desk.run(line.replace("2026-12-02", "2027-12-01"))
    assert (other.code, other.out) == (5, "")
    assert "id_reused" in other.err


def test_a_charge_file_is_used_again(desk: Desk) -> None:
    """The same file under two ids: two charges, each for a clean room of its own, whose keys are left."""
    made = [
        _good(desk, f"epsilon charge make bank-a.toml run.json {CONTRACT} --id {name}") for name in ("week-1", "week-2")
    ]
    assert [(one["outcome"], one["repeated"]) for one in made] == [("pending", False)] * 2
    keys = [(desk.folder / f"week-{number}.room.pem").read_bytes() for number in (1, 2)]
    assert keys[0] != keys[1]
    for name in ("week-1", "week-2"):
        _good(desk, f"epsilon charge void bank-a.toml {name}")


def test_a_charge_tells_its_epsilon_and_what_it_does_to_its_accounts(desk: Desk) -> None:
    """The number of its quote and of `charge show`; the share before and now, the runs that still fit, what binds."""
    _room(desk, "run-9")
    line = f"bank-a.toml run-9.json {CONTRACT}"
    quoted = _good(desk, f"epsilon quote {line}")
    before = {one["name"]: one for one in _accounts(desk)}
    made = _good(desk, f"epsilon charge make {line} --id run-9")
    assert made["body"]["run_epsilon"] == quoted["run_epsilon"]
    assert _good(desk, "epsilon charge show bank-a.toml run-9")["run_epsilon"] == quoted["run_epsilon"]
    after = {one["name"]: one for one in _accounts(desk)}
    assert {one["name"] for one in made["accounts"]} == {"everyone", "Bank A"}
    for one in made["accounts"]:
        name = one["name"]
        assert (one["share_before"], one["share"]) == (before[name]["share"], after[name]["share"])
        assert one["share_before"] != one["share"]
        assert one["runs_like_the_last"] == after[name]["runs_like_the_last"] > 0
        assert one["binding"] == after[name]["binding"]
    told = desk.run(f"epsilon charge make {line} --id run-9").out
    number, share = quoted["run_epsilon"][0]["epsilon"][:4], after["Bank A"]["share"]
    assert all(word in told for word in ("recorded before", f"ε {number}", f"{share} now", "more runs like it fit"))
    _good(desk, "epsilon charge void bank-a.toml run-9")


def _accounts(desk: Desk) -> list[dict[str, Any]]:
    found = json.loads(desk.run(f"epsilon account bank-a.toml {REF} --json").out)
    accounts: list[dict[str, Any]] = found[0]["accounts"]
    return accounts


def test_charges_are_shown_posted_and_voided(desk: Desk) -> None:
    """A clean room posts for what ran, a TDC voids what it did not need; both are then told so."""
    _room(desk, "run-2")
    made = _good(desk, f"epsilon charge make bank-a.toml run-2.json {CONTRACT} --id run-2")
    assert isinstance(made["receipt"], str)
    assert _good(desk, "epsilon charge post bank-a.toml run-2 80 --room run-2.pem")["outcome"] == "posted"
    shown = _good(desk, "epsilon charge show hospital.toml run-2")
    assert (shown["state"], shown["steps_posted"]) == ("posted", 80)
    _room(desk, "run-3")
    _good(desk, f"epsilon charge make bank-a.toml run-3.json {CONTRACT} --id run-3")
    assert _good(desk, "epsilon charge void bank-a.toml run-3")["outcome"] == "voided"
    assert "voided" in desk.run("epsilon charge show bank-a.toml run-3").out


def test_datasets_and_partitions_are_shown(desk: Desk) -> None:
    """One table of all, one partition with its terms."""
    listed = desk.run("epsilon dataset show bank-a.toml")
    assert listed.code == 0
    assert all(word in listed.out for word in (REF, "renyi", "1000", "open"))
    one = _good(desk, f"epsilon dataset show hospital.toml {REF}")
    assert one["budget"] == {"delta": "0.00001", "epsilon": "6"}


def test_contracts_are_shown_by_file_and_by_digest(desk: Desk) -> None:
    """The file that was entered names the contract, as its digest does."""
    by_file = _good(desk, "epsilon contract show hospital.toml contract.yaml")
    digest = c.digest((desk.folder / "contract.yaml").read_bytes())
    assert by_file == _good(desk, f"epsilon contract show bank-a.toml {digest}")
    assert (by_file["document"], by_file["consumer"]) == (digest, BANK_A)


def test_a_contract_is_amended_and_revoked(desk: Desk) -> None:
    """Its next version takes all signatures anew; a TDP ends it alone, and then nothing is charged under it."""
    text = (desk.folder / "contract.yaml").read_text().replace("scans-bank-a", "scans-again")
    for version in (1, 2):
        (desk.folder / "again.yaml").write_text(text.replace("version: 1", f"version: {version}"))
        assert desk.run("epsilon contract sign hospital.toml again.yaml > again.jws").code == 0
        _good(desk, "epsilon contract enter bank-a.toml again.yaml --signature again.jws")
        assert _good(desk, "epsilon contract show bank-a.toml again.yaml")["version"] == version
    assert _good(desk, "epsilon contract revoke hospital.toml again.yaml")["outcome"] == "permitted"
    _room(desk, "revoked")
    refused = desk.run("epsilon quote bank-a.toml revoked.json --contract again.yaml --deadline 2026-12-02T00:00:00Z")
    assert (refused.code, refused.out) == (3, "")
    assert "contract_revoked" in refused.err


def test_a_contract_is_proposed_and_entered_with_what_was_proposed(desk: Desk) -> None:
    """The other party finds it, has the very bytes, and enters it without a file of the first one's signature."""
    text = (desk.folder / "contract.yaml").read_text().replace("scans-bank-a", "scans-proposed")
    (desk.folder / "proposed.yaml").write_text(text)
    told = desk.run("epsilon contract propose hospital.toml proposed.yaml")
    assert (told.code, "waits for the signature of Bank A" in told.out) == (0, True)
    listed = desk.run("epsilon contract proposals bank-a.toml --into found")
    assert (listed.code, "scans-proposed, version 1" in listed.out) == (0, True)
    digest = c.digest((desk.folder / "proposed.yaml").read_bytes())
    assert (desk.folder / "found" / digest).read_text() == text
    alone = desk.run(f"epsilon contract enter bank-a.toml found/{digest}")
    assert (alone.code, "signature_missing" in alone.err) == (6, True)
    assert _good(desk, f"epsilon contract enter bank-a.toml found/{digest} --proposed")["outcome"] == "permitted"
    assert "No contract that names you" in desk.run("epsilon contract proposals bank-a.toml").out


def _room(desk: Desk, name: str, *partitions: str) -> CleanRoom:
    """A charge's body for a clean room of its own, in a file."""
    room = CleanRoom()
    body = json.loads((desk.folder / "charge.json").read_text())
    body["partitions"] = [*partitions] or body["partitions"]
    (desk.folder / f"{name}.json").write_text(json.dumps({**body, "clean_room": room.to_json()}))
    room.signer.save(desk.folder / f"{name}.pem")
    return room


def _register(desk: Desk, slug: str, role: str, name: str) -> None:
    text = (desk.folder / "bank-a.toml").read_text().replace("bank-a", slug)
    (desk.folder / f"{slug}.toml").write_text(text)
    assert desk.run(f"epsilon key new {slug}.pem").code == 0
    desk.known_to_the_issuer(slug)
    assert desk.run(f"epsilon key claim {slug}.toml --name '{name}' --role {role} > {slug}.json").code == 0
    _good(desk, f"epsilon key register sro.toml {slug}.json")


def test_lineage_events_are_entered(desk: Desk) -> None:
    """Each kind, by the SRO, becomes an entry of its kind."""
    for slug in ("bank-b", "bank-c", "bank-d", "bank-e", "bank-f", "bank-g"):
        _register(desk, slug, "TDC", slug)
    b, d, e, f, g = (f"did:web:bank-{one}.example" for one in "bdefg")
    for line in (
        f"declare sro.toml {BANK_A} {b} --epsilon 4",
        f"transfer sro.toml run-1 {b}",
        f"split sro.toml {b} did:web:bank-c.example",
        f"merge sro.toml {d} {b} --yes",
        f"acquire sro.toml {d} {e} --yes",
        f"collude sro.toml {f} {g} --since 2026-12-01T00:00:00Z",
        "publish sro.toml run-1 --yes",
    ):
        assert _good(desk, f"epsilon lineage {line}")["outcome"] == "permitted", line


def test_a_model_is_handed_over_by_what_its_recipient_signed(desk: Desk) -> None:
    """Signed on its own machine and sent by the giver; what holds no longer, or was edited, says what to do next."""
    _register(desk, "bank-h", "TDC", "bank-h")
    _room(desk, "run-5")
    _good(desk, f"epsilon charge make bank-a.toml run-5.json {CONTRACT} --id run-5")
    _good(desk, "epsilon charge post bank-a.toml run-5 100 --room run-5.pem")
    size, agree = desk.world.size, f"epsilon lineage agree bank-h.toml run-5 {BANK_A} --runs"
    signed = desk.run(f"{agree} 9 > agreement.json")
    assert (signed.code, "You sign: " in signed.err, desk.world.size) == (0, True, size)
    agreement = json.loads((desk.folder / "agreement.json").read_text())
    assert agreement["runs"] == 9
    assert desk.run(f"{agree} 1 --json > one.json").code == 0
    (desk.folder / "edited.json").write_text(json.dumps({**agreement, "runs": 10}))
    line = "epsilon lineage transfer bank-a.toml run-5 did:web:bank-h.example --agreement"
    for file, code, word in (("one.json", 5, "brings more than 1 runs"), ("edited.json", 6, "does not verify")):
        refused = desk.run(f"{line} {file}")
        assert (refused.code, refused.out, word in refused.err) == (code, "", True), refused.err
        assert "epsilon lineage agree" in refused.err.splitlines()[-1]
    assert _good(desk, f"{line} agreement.json")["outcome"] == "permitted"


def test_an_account_is_reset_by_an_sro_s_decree(desk: Desk) -> None:
    """Once something is settled, the SRO's order is recorded with its reason; a TDP's is not."""
    _room(desk, "run-4")
    _good(desk, f"epsilon charge make bank-a.toml run-4.json {CONTRACT} --id run-4")
    _good(desk, "epsilon charge post bank-a.toml run-4 100 --room run-4.pem")
    line = f"policy decree PROFILE {REF} global --reason 'order 1'"
    refused = desk.run(f"epsilon {line.replace('PROFILE', 'hospital.toml')}")
    assert (refused.code, refused.out) == (6, "")
    made = _good(desk, f"epsilon {line.replace('PROFILE', 'sro.toml')}")
    body = made["body"]
    assert isinstance(body, dict)
    assert made["outcome"] == "permitted"
    assert "order 1" in json.dumps(body)
    node = next(one["holder"] for one in _accounts(desk) if one["name"] == "Bank A")
    for named in ("'Bank A'", BANK_A, node):
        made = _good(desk, f"epsilon policy decree sro.toml {REF} {named} --reason 'order 2'")
        assert made["body"]["request"]["holder"] == node
    unknown = desk.run(f"epsilon policy decree sro.toml {REF} 'Bank Z' --reason 'order 3'")
    assert (unknown.code, "'Bank Z' names no account" in unknown.err, "Bank A" in unknown.err) == (2, True, True)


def test_the_log_s_time_goes_back_by_signed_corrections(desk: Desk) -> None:
    """Signed by each SRO on its own machine, and sent by one; without all of them it is refused."""
    _room(desk, "ahead-1")
    desk.world.clock.now += 60_000
    _good(desk, f"epsilon charge make bank-a.toml ahead-1.json {CONTRACT} --id ahead-1")
    desk.world.clock.now -= 60_000
    with desk.world.book.read() as facts:
        ahead = facts.time
    stated = f"sro.toml --id back-1 --ahead {ahead} --time {ahead - 60_000} --reason 'the clock was a minute ahead'"
    signed = desk.run(f"epsilon clock sign {stated} > own.jws")
    assert (signed.code, "nothing was sent" in signed.err) == (0, True)
    refused = desk.run(f"epsilon clock correct {stated} --signature charge.json")
    assert (refused.code, "holds no detached JWS" in refused.err) == (2, True)
    late = desk.run(f"epsilon clock correct {stated.replace(f'--ahead {ahead}', f'--ahead {ahead + 1}')}")
    assert (late.code, "set the service's clock right" in late.err) == (5, True)
    would = _good(desk, f"epsilon clock correct {stated} --dry-run")
    assert (would["outcome"], would["index"]) == ("permitted", None)
    assert _good(desk, f"epsilon clock correct {stated}")["outcome"] == "permitted"
    with desk.world.book.read() as facts:
        assert facts.time == ahead - 60_000


def test_recommendations_and_retirements_are_entered(desk: Desk) -> None:
    """A TSO recommends a budget; a TDP opens a second partition and retires it, which is shown as retired."""
    _register(desk, "tso", "TSO", "A standards body")
    text = (
        "kind: recommendation\nv: 1\nid: scans-1\nversion: 1\nissuer: did:web:tso.example\ndataset: scans\n"
        f"provider: {HOSPITAL}\nbudget: {{epsilon_max: '6', delta_max: '0.00001'}}\n"
    )
    (desk.folder / "recommendation.yaml").write_text(text)
    assert _good(desk, "epsilon dataset recommend tso.toml recommendation.yaml")["outcome"] == "permitted"
    other = (desk.folder / "partition.json").read_text().replace("2026-q4", "2027-q1")
    (desk.folder / "partition-2.json").write_text(other)
    fresh = (desk.folder / "scans.csv").read_text().replace("\ns", "\nt")
    (desk.folder / "scans-2.csv").write_text(fresh)
    for name in ("scans", "scans-2"):
        made = f"--target digit --identity scan --commitment-key commitments.key --out of-{name}"
        _good(desk, f"epsilon dataset commit {name}.csv {made}")
    opening = "epsilon dataset open-partition hospital.toml partition-2.json"
    assert "commitments_missing" in desk.run(opening).err
    assert "records_overlap" in desk.run(f"{opening} --commitments of-scans/share/commitments-1.bin").err
    _good(desk, f"{opening} --commitments of-scans-2/share/commitments-1.bin")
    ref = REF.replace("2026-q4", "2027-q1")
    _check_a_charge_over_both(desk, ref)
    assert _good(desk, f"epsilon dataset retire hospital.toml {ref}")["outcome"] == "permitted"
    rows = desk.run("epsilon dataset show sro.toml").out.splitlines()
    assert ["retired" in row for row in rows if "/scans/" in row] == [False, True]


def _check_a_charge_over_both(desk: Desk, new: str) -> None:
    """A charge over a range tells the accounts of its fullest partitions, before and now."""
    _room(desk, "over-both", "scans[last 2]")
    line = f"epsilon charge make bank-a.toml over-both.json {CONTRACT} --id over-both"
    made = _good(desk, line)
    assert made["body"]["groups"] == [[0, 2]]
    assert {one["partition"]: one["share_before"] == "0 %" for one in made["accounts"]} == {REF: False, new: True}
    assert made["accounts"][0]["partition"] == REF
    told = desk.run(line).out
    assert all(word in told for word in ("Of its 2 partitions, the fullest:", f"{REF}, account of Bank A"))
    _good(desk, "epsilon charge void bank-a.toml over-both")
