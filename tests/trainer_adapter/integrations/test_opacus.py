"""Opacus under a charge: what no plan covers is refused, another engine takes nothing, and the pages run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from msgspec import structs
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import blocks
from tests.trainer_adapter.integrations.opacus_bench import PLAN, SPARSE, WARNINGS, bench_of, posted_steps
from tests.trainer_adapter.killed_runs import RESUME
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus, opacus_batches
from trainer_adapter.integrations.opacus import NAME, LedgerAccountant, Refusal, register
from trainer_adapter.run.charged_run import Run
from trainer_adapter.training.attach import attach

pytestmark = WARNINGS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "shuffled batches": ({"poisson_sampling": False}, "poisson_sampling must be True"),
    "random records for an empty draw": ({"rand_on_empty": True}, "rand_on_empty must be False"),
    "ghost clipping": ({"grad_sample_mode": "ghost"}, "grad_sample_mode must be hooks"),
    "adaptive clipping": ({"clipping": "adaptive"}, "clipping must be flat"),
    "less noise": ({"noise_multiplier": 7.999}, "the plan has noise 8.0"),
    "a greater norm": ({"max_grad_norm": 50.0}, "the plan has the clipping norm 1.0, and the optimiser 50.0"),
    "norms of another length": ({"max_grad_norm": [1.0, 1.0], "clipping": "per_layer"}, "and the optimiser 1.41"),
    "more records": ({"batch_size": 700}, "the loader draws with probability"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_plan_covers_is_refused_before_a_step(place: Place, name: str) -> None:
    """By name and rule, when the engine is asked: no step is taken, and that is posted."""
    requested, match = REFUSED[name]
    with bench_of(place, name.replace(" ", "-")) as bench:
        with pytest.raises(Refusal, match=match):
            bench.private("engine", **requested)
        assert bench.run.budget.taken == 0
    assert posted_steps(place, name.replace(" ", "-")) == 0


def test_a_hook_of_the_accountant_is_for_the_engine_alone(place: Place) -> None:
    """By hand it could be replaced: refused. An optimiser and a loader made by hand are held, or refused."""
    with bench_of(place, "by-hand") as bench:
        accountant = create_accountant(register(bench.run))
        assert isinstance(accountant, LedgerAccountant)
        with pytest.raises(Refusal, match="let make_private make the optimiser"):
            accountant.get_optimizer_hook_fn(0.5)
        bench.private("engine")
        bare = DPOptimizer(
            torch.optim.SGD(bench.model.parameters(), lr=0.3),
            noise_multiplier=8.0,
            max_grad_norm=1.0,
            expected_batch_size=350,
        )
        with pytest.raises(Refusal, match="does not draw by Poisson sampling"):
            accountant.hold(bench.model, bare, DataLoader(bench.records, batch_size=350, shuffle=True))
        bench.loader, bench.optimiser = DPDataLoader(bench.records, sample_rate=0.5), bare
        accountant.hold(bench.model, bare, bench.loader)
        bare.step_hook = None
        bench.refused()
        assert len(bench.weights) == PLAN.steps
    assert posted_steps(place, "by-hand") == PLAN.steps


def test_made_private_again_the_optimiser_goes_on_by_the_same_charge(place: Place) -> None:
    """The first loop's updates are refused from then on, the second's take what steps are left."""
    with bench_of(place, "again-private") as bench:
        bench.private("engine")
        first, loader = bench.optimiser, bench.loader
        bench.backward(next(iter(loader)))
        first.step()
        engine = PrivacyEngine(accountant=NAME)
        bench.module, bench.optimiser, bench.loader = engine.make_private(
            module=bench.module,
            optimizer=first,
            data_loader=DataLoader(bench.records, batch_size=350),
            noise_multiplier=8.0,
            max_grad_norm=1.0,
        )
        bench.backward(next(iter(loader)))
        with pytest.raises(Refusal, match="noise of its own"):
            first.step()
        bench.refused()
        assert len(bench.weights) == PLAN.steps - 2
    assert posted_steps(place, "again-private") == PLAN.steps


def test_registered_and_never_asked_the_charge_stands(place: Place) -> None:
    """Who then trains by another engine is seen to have taken nothing: nothing is posted, so nothing comes back."""
    with bench_of(place, "elsewhere") as bench:
        register(bench.run)
        engine = PrivacyEngine(accountant="rdp")
        _, _, loader = engine.make_private(
            module=bench.model,
            optimizer=torch.optim.SGD(bench.model.parameters(), lr=0.3),
            data_loader=DataLoader(bench.records, batch_size=350),
            noise_multiplier=8.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
        )
        assert not isinstance(loader.batch_sampler, opacus_batches.PoissonDraws)
    charge = place.charge("elsewhere")
    assert charge is not None
    assert charge.state is ChargeState.PENDING


def test_a_step_lighter_in_noise_or_denser_is_refused(place: Place) -> None:
    """Less noise or a higher sampling rate than was charged: refused, and no step is taken for it."""
    with bench_of(place, "other") as bench:
        accountant = create_accountant(register(bench.run))
        assert isinstance(accountant, LedgerAccountant)
        assert accountant.mechanism() == NAME
        for noise, rate in ((7.999, 0.5), (8.0, 0.5001), (8.0, 1.0)):
            with pytest.raises(Refusal, match="the plan has noise"):
                accountant.step(noise_multiplier=noise, sample_rate=rate)
        assert len(accountant) == 0
        bench.private("engine")
        bench.optimiser.noise_multiplier = 7.0
        bench.refused("the plan has noise")
        bench.optimiser.noise_multiplier = 8.0
        accountant.step(noise_multiplier=8.0, sample_rate=0.5)
        assert len(accountant) == 1
        spent = bench.run.privacy.epsilon.epsilon
        assert spent is not None
        assert accountant.get_epsilon(1e-4) >= spent
        with pytest.raises(ValueError, match="no ε is reported for a smaller one"):
            accountant.get_epsilon(1e-5)
    # The draw whose step was refused had none.
    assert posted_steps(place, "other") is None


def test_a_plan_over_users_is_not_for_opacus(tmp_path: Path) -> None:
    """It was priced for users that are clipped as one, and Opacus clips records."""
    over_users = structs.replace(PLAN, unit="user")
    with (
        open_place(tmp_path / "place", unit="user") as of_users,
        bench_of(of_users, "users", over_users) as bench,
        pytest.raises(Refusal, match="the plan's unit is the user"),
    ):
        bench.private("ours")


@pytest.mark.parametrize("plan", [PLAN, SPARSE], ids=["dense", "sparse"])
def test_the_page_s_code_runs_as_it_stands(place: Place, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    """docs/loops/opacus.md, beside a job: every step is taken and posted, on empty draws too, and the model leaves."""
    monkeypatch.chdir(place.folder)
    run = f"opacus-page-{plan.steps}"
    text = place.assignment_file(run, plan).read_text().replace("../", "")
    (place.folder / "job.toml").write_text(text)
    (code,) = (one.text for one in blocks(Path(__file__).parents[3] / "docs" / "loops" / "opacus.md"))
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "opacus.md", "exec"), names)  # noqa: S102 - our own page
    assert posted_steps(place, run) == plan.steps
    assert (place.folder / "runs" / run / "model.safetensors").exists()


# Opacus says so of its own accountant at an ε this small.
@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha:UserWarning")
def test_the_local_way_is_no_longer_than_opacus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/local.md, local.md below: both side by side, each run as it stands, with the counts that the page states."""
    page = Path(__file__).parents[3] / "docs" / "local.md"
    ours, alone = (one.text for one in blocks(page) if one.language == "python" and "randn" in one.text)
    lines = [len([line for line in one.splitlines() if line]) for one in (ours, alone)]
    reported = " ".join(page.read_text(encoding="utf-8").split())
    assert f"by Opacus alone takes {lines[1]} lines; the first example above takes {lines[0]}" in reported
    assert lines[0] <= lines[1] + 3
    shown: list[float] = []
    monkeypatch.setattr("builtins.print", shown.append)
    exec(compile(alone, "local.md", "exec"), {"__name__": "page"})  # noqa: S102 - our own page
    assert 0 < shown[0] <= 0.75


def test_a_run_that_can_be_resumed_is_refused(place: Place) -> None:
    """A loop that dies of a batch and is resumed passes over it: refused by both doors, for no step."""
    text = RESUME.format(name="resumable")
    with Run(place.assignment("resumable", PLAN, text), place.service) as run:
        run.open_data()
        run.begin()
        with pytest.raises(Malformed, match=r"^train\.resume: is for other runs: a process may have died"):
            register(run)
        model = nn.Linear(64, 10)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
        with pytest.raises(Malformed, match=r"^train\.resume: is for other runs"):
            opacus.make_private(run, model, optimiser, TensorDataset(torch.zeros(1, 64)))
    assert posted_steps(place, "resumable") == 0


def test_a_run_of_attach_is_refused(place: Place) -> None:
    """It has an engine of its own: said before anything is charged, by both doors."""
    model = nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    attached = attach(model, optimiser, cross_entropy, place.assignment("of-attach", PLAN))
    with pytest.raises(Malformed, match=r"^run: is what attach gives"):
        register(attached)
    with pytest.raises(Malformed, match=r"^run: is what attach gives"):
        opacus.make_private(attached, model, optimiser, TensorDataset(torch.zeros(1, 64)))
    assert place.charge("of-attach") is None
