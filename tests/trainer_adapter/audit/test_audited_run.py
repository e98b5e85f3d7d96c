"""An audited run in a clean room: the page's job, from charge to entry; four of weak noise freeze the pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.demo import digits, participants
from api.keys.data_key_store import FileKeyStore
from client.keys.data_encryption import encrypt
from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.audit.audited_run import AuditedRun
from trainer_adapter.cli.audit import AuditReport, audit_job
from trainer_adapter.cli.check import check_job
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job

TERMS, PAGE, COMMAND = (block.text for block in blocks(ROOT / "docs" / "audit.md"))
LIGHT = ("canaries = 30000", "canaries = 10000")
ONE_STEP = (
    LIGHT,
    ("batch_size_expected = 320", "batch_size_expected = 5000"),
    ('noise_multiplier = "0.8"', 'noise_multiplier = "1.5"'),
    ("steps = 100", "steps = 1"),
    ('probability = "0.02"', 'probability = "1"'),
)
"""The page's job with one full step, which takes a moment."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A contract that opens the partition for audit, as the page says."""
    wide: c.Object = {"delta_max": "0.0001", "epsilon_max": "30"}
    with open_place(tmp_path / "place", budget=wide, lineage={"epsilon_max": "30"}, run={"epsilon_max": "4"}) as found:
        budget: c.Object = {"delta": "0.00001", "epsilon": "30"}
        opened = {**participants.partition(found.tdp, "audited", digits.RECORDS), **budget}
        found.tdp.submit("partition", opened)
        found.ref = f"{found.tdp.did}/{participants.DATASET}/audited"
        keys = FileKeyStore(found.folder / "data-keys")
        found.data_key = keys.create(found.tdp.did, f"{participants.DATASET}-audited").reveal()
        found.sealed.write_bytes(encrypt(found.data_key, found.ref, digits.archive(digits.FIRST)))
        terms: Any = json.loads(TERMS)
        terms["partitions"] = [found.ref]
        agreed = {
            **participants.contract(found.tdp, found.bank, found.clock() // 1000 * 1000),
            "audit": terms,
            "run": {"epsilon_max": "4"},
            "runs_max": 1_000,
            "version": 2,
        }
        found.contract, _ = found.bank.enter("contract", agreed, found.tdp)
        (found.folder / "pipeline.py").write_text("# what all jobs of the pipeline run\n")
        yield found


def written(place: Place, name: str, *changes: tuple[str, str]) -> Path:
    """The page's job, with these texts in place of others."""
    path = place.job(name)
    text = path.read_text().split("[train.plan]")[0] + PAGE
    text = text.replace("[train]\n", '[train]\npipeline = "../pipeline.py"\n')
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def audit(place: Place, name: str, *changes: tuple[str, str]) -> AuditReport:
    """One audit of one full step."""
    return audit_job(Job.load(written(place, name, *ONE_STEP, *changes)), place.service, lambda _: None)


def weaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the engine adds a quarter of the charged noise: each audit finds that, where a half may escape."""
    whole: Callable[..., Any] = AuditedRun._checked_engine  # noqa: SLF001 - the fault that audits are to find

    def faulty(self: AuditedRun, *given: Any) -> Any:  # noqa: ANN401
        engine = whole(self, *given)
        engine.noise_std = engine.noise_std / 4
        return engine

    monkeypatch.setattr(AuditedRun, "_checked_engine", faulty)


def test_the_page_s_job_is_checked_and_nothing_recorded(place: Place) -> None:
    """Its charge would be permitted, at what its training costs."""
    assert COMMAND.split()[:2] == ["epsilon", "audit"]
    before = place.kinds()
    found = check_job(Job.load(written(place, "checked")), place.service)
    assert found.quote.permitted, found.quote.reasons
    assert "audit: 30000 canaries, of which 400 are guessed, at no price" in found.in_words()
    assert place.kinds() == before


def test_an_audit_is_an_entry_beside_its_claim(place: Place) -> None:
    """Charged, trained, posted without a model, reported; the plan's noise is not accused."""
    test = dict(np.load(place.folder / "data" / "test.npz"))
    np.savez(place.folder / "data" / "test.npz", **test, groups=np.arange(len(test["targets"])) % 3)
    report = audit(place, "faithful")
    sizes = np.bincount(np.arange(len(test["targets"])) % 3)
    assert sum(sizes[int(group)] * one for group, one in report.by_group.items()) == pytest.approx(
        len(test["targets"]) * report.accuracy
    )
    assert "of group 2: accuracy" in report.in_words()
    kinds = [kind for kind, code in place.kinds() if code in {"permitted", "posted", "pending"}]
    assert kinds[-3:] == ["step_lease", "post", "audit_report"]
    with place.book.read() as facts:
        entry = Entry.parse(facts.entry(report.entry))
    assert entry.body["epsilon_least"] == report.to_json()["epsilon_least"]
    assert (report.found.above, report.found.audits, report.found.repeats) == (False, 1, 0)
    assert Fraction(1, 2) < report.found.epsilon_least < Fraction(report.claimed)
    assert "does not contradict the claimed ε" in report.in_words()
    charge = place.charge("faithful")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 1, None)
    assert not [*(place.folder / "runs" / "faithful").glob("model*")]


def test_a_quarter_of_the_noise_freezes_the_pipeline_by_the_fourth_audit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alerts; a model of that pipeline then stays, and one of another leaves."""
    jobs = [place.job(name, PLAN) for name in ("same", "other")]
    (place.folder / "other.py").write_text("# another pipeline\n")
    for path, file in zip(jobs, ("pipeline.py", "other.py"), strict=True):
        path.write_text(path.read_text().replace("[train]\n", f'[train]\npipeline = "../{file}"\n'))
    with monkeypatch.context() as patched:
        weaken(patched)
        found = [audit(place, f"weakened-{place_}") for place_ in range(4)]
    assert [one.found.above for one in found] == [True] * 4
    assert [one.found.repeats for one in found] == [3, 2, 1, 0]
    assert "ALERT: audit this pipeline 3 times more" in found[0].in_words()
    assert "FROZEN" in found[3].in_words()
    assert place.run(jobs[1]).model
    said: list[str] = []
    assert not place.run(jobs[0], said.append).model
    assert any("4 audits of pipeline" in line for line in said)


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ('pipeline = "../pipeline.py"\n', "", r"train\.pipeline: is missing"),
        ("[train]\n", "[train]\nwatermark = true\n", r"train\.watermark: is for models that leave"),
        ("guesses = 400", "guesses = 40000", r"guesses"),
        ("canaries = 10000", "canaries = 0", r"canaries"),
        ('model = "', 'accuracy_target = "0.9"\nmodel = "', r"accuracy_target"),
    ],
)
def test_a_job_that_cannot_be_audited_is_refused_by_name(place: Place, old: str, new: str, refusal: str) -> None:
    """Before anything is sent to the service."""
    before = place.kinds()
    with pytest.raises(Malformed, match=refusal):
        audit(place, "wrong", (old, new))
    assert place.kinds() == before


def test_other_loops_refuse_an_audited_plan(place: Place) -> None:
    """They would train beside no canary; and `epsilon audit` takes nothing else."""
    job = Job.load(written(place, "elsewhere"))
    with pytest.raises(Malformed, match="is audited, as `epsilon audit` runs"):
        train_job(job, place.service, lambda _: None)
    with pytest.raises(Malformed, match="must be of kind 'audited'"):
        audit_job(
            Job.load(place.job("plain", Plan(Fraction(1, 8), Fraction(16), Fraction(1), 12, 64))), place.service, print
        )
