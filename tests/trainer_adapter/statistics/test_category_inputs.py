"""A run of stages whose inputs are its own private categories, and whose noise is chosen from one ε for all stages."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.demo import participants
from api.demo.sealed_archive import sealed_archive
from api.keys.data_key_store import FileKeyStore
from client.http.problems import Refused
from ledger.accounting.epsilon_report import report_epsilon
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.mechanism import BlackBox
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.evaluate import sealed_constants
from trainer_adapter.cli.train import train_job
from trainer_adapter.session.noise_choice import load_job

RECORDS = 600
TAKEN: Any = ["black_box", "poisson_gaussian", "pure"]
(PAGE,) = (one.text for one in blocks(ROOT / "docs" / "statistics.md") if "one_hot" in one.text)
PRIVACY = """
[train.privacy]
epsilon = "2"
batch_size_expected = 150
clipping_norm = "1"
steps = 10
held_out = "0.3"

[[train.privacy.statistics]]
kind = "private_categories"
name = "strains"
column = "inputs[1]"
categories_max = 4
epsilon = "0.5"
delta = "0.000001"

[[train.privacy.metrics]]
kind = "area_under_curve"
name = "roc"
epsilon = "0.5"
negatives_max = 120
positives_max = 120
score = "outputs[1]"
truth = "targets"
"""
ONE_HOT = '\n[[train.preprocessing]]\nkind = "one_hot"\ncolumn = 1\nstatistic = "strains"\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service with a partition that keeps a part of δ for what has one: strains 3 and 8, and one person with 77."""
    with open_place(tmp_path_factory.mktemp("strains") / "place", mechanisms=TAKEN) as found:
        opened = participants.partition(found.tdp, "strains", RECORDS)
        found.tdp.submit("partition", {**opened, "slack": "0.000005"})
        ref = f"{found.tdp.did}/{participants.DATASET}/strains"
        store = FileKeyStore(found.folder / "data-keys")
        key = store.create(found.tdp.did, f"{participants.DATASET}-strains").reveal()
        (found.folder / "data" / "strains.sealed").write_bytes(sealed_archive(_archive(RECORDS, 77), key, ref, 2))
        (found.folder / "data" / "public.npz").write_bytes(_archive(40, 3))
        yield found


def _archive(records: int, rare: int) -> bytes:
    drawn, file = np.random.default_rng(records), io.BytesIO()
    strain = drawn.choice([3, 8], records)
    # Whom a strain makes ill; as a number it would say as little as a name.
    ill = (strain == 8) ^ (drawn.random(records) < 0.1)
    strain[0] = rare
    inputs = np.stack([drawn.normal(size=records), strain], axis=1).astype(np.float32)
    np.savez(file, inputs=inputs, targets=ill.astype(np.int64))
    return file.getvalue()


def _job(place: Place, name: str, privacy: str = PRIVACY, more: str = ONE_HOT) -> Path:
    path = place.job(name)
    head = path.read_text().split("[train.plan]")[0]
    for old, new in (
        ("2026-q3.sealed", "strains.sealed"),
        ("/2026-q3", "/strains"),
        ("test.npz", "public.npz"),
        ('model = "digits-linear"', 'model = "linear"\noutputs = 2'),
    ):
        assert old in head, old
        head = head.replace(old, new)
    path.write_text(head + privacy + more)
    return path


def test_categories_are_found_charged_and_become_inputs(place: Place) -> None:
    """The noise is what keeps ε for all stages; the rare category stays inside; the model has four places for them."""
    job = load_job(_job(place, "strains"))
    plan = StagedPlan.of(job.plan)
    assert isinstance(plan.mechanism(1), BlackBox)
    report = train_job(job, place.service, lambda _: None)
    whole = report_epsilon(plan.whole, report.privacy.epsilon.delta, "REPLACE_SPECIAL").epsilon
    assert Fraction(19, 10) < whole <= 2
    charge = place.charge("strains")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.plan) == (ChargeState.POSTED, 12, plan.digest)
    assert report.privacy.epsilon.epsilon == whole
    model = (job.output / "model.safetensors").read_bytes()
    about = json.loads(model[8 : 8 + int.from_bytes(model[:8], "little")])
    assert json.loads(about["__metadata__"]["answers"])["strains.values"] == [3, 8]
    assert about["1.weight"]["shape"] == [2, 1 + 4]
    # Nine tenths follow from the strain, and nothing from the number beside it.
    assert report.accuracy > 0.75
    ((_, constants),) = sealed_constants(job, place.service, model).items
    assert constants["values"][:2].tolist() == [3, 8]
    assert constants["values"][2:].isnan().all()


def test_the_page_has_such_a_job(place: Place) -> None:
    """Its statistic and its preprocessing belong together."""
    job = load_job(_job(place, "page", PAGE, ""))
    assert [one.name for one in StagedPlan.of(job.plan).statistics] == ["strains"]
    assert [(one.kind, one.column) for one in job.preprocessing] == [("one_hot", 1)]


@pytest.mark.parametrize(
    ("changed", "more", "words"),
    [
        (("0.000001", "0.01"), ONE_HOT, "epsilon: cannot be kept beside what the statistics and metrics cost"),
        (('epsilon = "0.5"', 'epsilon = "3"'), ONE_HOT, "cannot be kept beside what the statistics and metrics cost"),
        (('name = "strains"', 'name = "other"'), ONE_HOT, "strains is none of the private categories"),
        (('held_out = "0.3"', ""), ONE_HOT, "train.privacy.held_out: must be given exactly if there are metrics"),
        (('held_out = "0.3"', 'held = "0.3"'), ONE_HOT, "train.privacy.held"),
        (('"outputs[1]"', '"inputs[7]"'), ONE_HOT.replace("1", "2"), "column: is 2, and the inputs have the columns 0"),
    ],
)
def test_what_is_refused_before_the_charge(place: Place, changed: tuple[str, str], more: str, words: str) -> None:
    """By the field and the rule."""
    name = f"refused-{abs(hash((changed, more)))}"
    with pytest.raises(Malformed) as refused:
        train_job(load_job(_job(place, name, PRIVACY.replace(*changed), more)), place.service, lambda _: None)
    assert words in str(refused.value)
    assert place.charge(name) is None


def test_a_partition_without_slack_has_no_room_for_a_delta(place: Place) -> None:
    """And refuses the charge by name."""
    path = _job(place, "no-slack")
    path.write_text(path.read_text().replace("/strains", "/2026-q3").replace("strains.sealed", "2026-q3.sealed"))
    with pytest.raises(Refused, match="slack"):
        train_job(load_job(path), place.service, lambda _: None)
    assert place.charge("no-slack") is None
