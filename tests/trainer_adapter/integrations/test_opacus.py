"""Opacus under a charge: no noise without a step of it, whoever hangs which hooks where, and no draw but the plan's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from msgspec import structs
from opacus import PrivacyEngine
from opacus.accountants import create_accountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus, opacus_guards
from trainer_adapter.integrations.opacus import NAME, LedgerAccountant, Refusal, register
from trainer_adapter.run.charged_run import Run
from trainer_adapter.training.attach import attach
from trainer_adapter.training.training_records import read_records

pytestmark = [
    # PrivacyEngine says that its generator is not made for secrets; without its missing package it has no other.
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),
    # Its hooks look at every layer, the first too, whose inputs are records and need no gradient.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]
PLAN: Final = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 6, 350)
OVER: Final = "all 6 steps that were charged are taken"


@dataclass
class Bench:
    """What one test trains, and what it saw: the weights after each update, and the calls of its hooks."""

    run: Run
    model: nn.Linear
    records: TensorDataset
    module: Any = None
    optimiser: Any = None
    loader: Any = None
    weights: list[Tensor] = field(default_factory=list)
    hooked: list[str] = field(default_factory=list)

    def hook(self, name: str) -> Callable[[DPOptimizer], None]:
        """A hook that notes that it was called."""
        return lambda _: self.hooked.append(name)

    def private(self, by: str, **asked: Any) -> None:  # noqa: ANN401 - Opacus's own
        """Made private by the engine of Opacus or by ours."""
        stepped = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        if by == "ours":
            made = opacus.make_private(self.run, self.model, stepped, self.records)
        else:
            told = {"noise_multiplier": 8.0, "max_grad_norm": 1.0, **asked}
            loader = DataLoader(self.records, batch_size=told.pop("batch_size", 350))
            engine = PrivacyEngine(accountant=register(self.run))
            made = engine.make_private(module=self.model, optimizer=stepped, data_loader=loader, **told)
        self.module, self.optimiser, self.loader = made

    def backward(self, batch: list[Tensor]) -> None:
        """Gradients of one batch."""
        self.optimiser.zero_grad()
        cross_entropy(self.module(batch[0]), batch[1]).backward()

    def train(self, step: Callable[[], object] | None = None, loader: Iterable[Any] | None = None) -> None:
        """Update until something refuses it, or many times more than the plan has steps."""
        while len(self.weights) < 5 * PLAN.steps:
            for batch in loader or self.loader:
                self.backward(batch)
                (step or self.optimiser.step)()
                self.weights.append(self.model.weight.detach().clone())

    def refused(self, match: str = OVER, step: Callable[[], object] | None = None) -> None:
        """Train until then; what is left in the gradients is nothing."""
        with pytest.raises(Refusal, match=match):
            self.train(step)
        assert all(one.grad is None for one in self.model.parameters())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


@contextmanager
def _bench(place: Place, name: str, plan: Plan = PLAN, **asked: Any) -> Iterator[Bench]:  # noqa: ANN401 - members of the assignment
    torch.manual_seed(5)
    with Run(replace(place.assignment(name, plan), **asked), place.service) as run:
        ((ref, data),) = run.open_data().items()
        run.begin()
        yield Bench(run, nn.Linear(64, 10), TensorDataset(*read_records(data, ref)))


def _posted(place: Place, name: str) -> int | None:
    charge = place.charge(name)
    assert charge is not None
    return charge.steps_posted


def _wrapped(bench: Bench) -> None:
    before = bench.optimiser.step_hook
    bench.optimiser.attach_step_hook(lambda stepped: (before and before(stepped), bench.hook("a")(stepped)))


def _twice(bench: Bench) -> None:
    bench.optimiser.attach_step_hook(bench.hook("a"))
    bench.optimiser.attach_step_hook(bench.hook("b"))


def _emptied(bench: Bench) -> None:
    bench.optimiser.attach_step_hook(bench.hook("a"))
    bench.optimiser.step_hook = None


WAYS: Final[dict[str, tuple[Callable[[Bench], object], str]]] = {
    "none": (lambda _: None, ""),
    "attached": (lambda bench: bench.optimiser.attach_step_hook(bench.hook("a")), "a"),
    "two attached": (_twice, "ab"),
    "attached by the class": (lambda bench: DPOptimizer.attach_step_hook(bench.optimiser, bench.hook("a")), "a"),
    "put into the slot": (lambda bench: setattr(bench.optimiser, "step_hook", bench.hook("a")), "a"),
    "slot emptied": (_emptied, ""),
    "around the one before": (_wrapped, "a"),
}
"""How a hook is attached, and which are called at each step."""


@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("by", ["ours", "engine"])
@pytest.mark.parametrize("way", WAYS)
def test_every_update_takes_a_step_whatever_hooks_there_are(place: Place, way: str, by: str, when: str) -> None:
    """Six updates, all posted; the seventh is refused before its noise, and every hook was called in order."""
    attach, called = WAYS[way]
    name = f"{way}-{by}-{when}".replace(" ", "-")
    with _bench(place, name) as bench:
        bench.private(by)
        before = 0
        if when == "later":
            bench.backward(next(iter(bench.loader)))
            bench.optimiser.step()
            before = 1
        attach(bench)
        bench.weights.append(bench.model.weight.detach().clone())
        bench.refused()
        assert len(bench.weights) == PLAN.steps - before + 1
        assert all(not torch.equal(one, two) for one, two in pairwise(bench.weights))
        assert torch.equal(bench.model.weight, bench.weights[-1])
        assert "".join(bench.hooked) == called * (PLAN.steps - before)
    assert _posted(place, name) == PLAN.steps


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_an_update_in_pieces_takes_a_step(place: Place, by: str) -> None:
    """Who calls the parts of a step one by one, with the hook left out, gets no more of them."""
    with _bench(place, f"pieces-{by}") as bench:
        bench.private(by)

        def step() -> None:
            bench.optimiser.clip_and_accumulate()
            bench.optimiser.add_noise()
            bench.optimiser.scale_grad()
            bench.optimiser.original_optimizer.step()

        bench.refused(step=step)
        assert len(bench.weights) == PLAN.steps
    assert _posted(place, f"pieces-{by}") == PLAN.steps


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_the_optimiser_beneath_makes_no_update_of_its_own(place: Place, by: str) -> None:
    """Stepped past Opacus, on gradients without noise: refused, the weights as they were, and so again after a step."""
    with _bench(place, f"beneath-{by}") as bench:
        bench.private(by)
        start = bench.model.weight.detach().clone()
        beneath = bench.optimiser.original_optimizer
        bench.refused("noise of its own", beneath.step)
        assert torch.equal(bench.model.weight, start)
        bench.backward(next(iter(bench.loader)))
        bench.optimiser.step()
        bench.refused("noise of its own", beneath.step)
        assert not bench.weights
    assert _posted(place, f"beneath-{by}") == 1


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_a_step_that_breaks_leaves_no_gradient(place: Place, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that cannot be made durable: no noise is drawn, the weights stay, and nothing is left to change them."""
    with _bench(place, f"breaks-{by}") as bench:
        bench.private(by)
        start = bench.model.weight.detach().clone()

        def full(_: int) -> None:
            raise OSError(28, "no space left on device")

        bench.backward(next(iter(bench.loader)))
        bench.optimiser.generator = generator = torch.Generator().manual_seed(3)
        undrawn = generator.get_state()
        with monkeypatch.context() as disk:
            disk.setattr("os.fsync", full)
            with pytest.raises(OSError, match="no space"):
                bench.optimiser.step()
        assert torch.equal(generator.get_state(), undrawn)
        assert torch.equal(bench.model.weight, start)
        assert all(one.grad is None for one in bench.model.parameters())


def test_a_batch_is_good_for_one_step(place: Place) -> None:
    """A list of batches drawn once and gone through again: refused where the second round begins."""
    with _bench(place, "again") as bench:
        bench.private("engine")
        kept = list(bench.loader)
        with pytest.raises(Refusal, match="no batch was drawn for this step"):
            bench.train(loader=kept)
        assert len(bench.weights) == len(kept) < PLAN.steps
    assert _posted(place, "again") == len(kept)


def test_an_epoch_that_ends_early_leaves_nothing_to_the_next(place: Place) -> None:
    """Left in the middle of a batch of several parts: the next epoch's first step sums its own records alone."""
    with _bench(place, "early") as bench:
        bench.records = TensorDataset(torch.zeros(700, 64))
        bench.private("engine")
        summed: list[float] = []
        # Of a record of zeros the bias alone has a gradient, of the same ten numbers for each, cut to length 1.
        bench.optimiser.attach_step_hook(lambda _: summed.append(float(bench.model.bias.summed_grad.norm())))  # type: ignore[attr-defined] # Opacus's own

        def step(inputs: Tensor) -> int:
            bench.optimiser.zero_grad()
            bench.module(inputs).sum(dim=1).mean().backward()
            bench.optimiser.step()
            return len(inputs)

        with BatchMemoryManager(
            data_loader=bench.loader, max_physical_batch_size=64, optimizer=bench.optimiser
        ) as parts:
            for (inputs,) in parts:
                step(inputs)
                break
            assert not summed
            drawn = 0
            for (inputs,) in parts:
                drawn += step(inputs)
                if summed:
                    break
        assert summed == [pytest.approx(drawn, rel=1e-3)]
    assert _posted(place, "early") == 1


def test_records_are_drawn_with_the_plans_own_probability(place: Place) -> None:
    """A third, which no float64 is: never above it, by ChaCha20, however the loader was made and PyTorch seeded."""
    third = Plan(Fraction(1, 3), Fraction(8), Fraction(1), 6, 233)
    seen: list[list[int]] = []
    for by in ("ours", "engine"):
        with _bench(place, f"third-{by}", third) as bench:
            bench.private(by, batch_size=234)
            torch.manual_seed(0)
            draws = bench.loader.batch_sampler
            assert isinstance(draws, opacus_guards.PoissonDraws)
            assert Fraction(draws.sample_rate) <= third.sampling_probability
            assert len(bench.loader) == 3
            seen.extend(draws)
            bench.refused()
            assert len(bench.weights) == third.steps
    assert len({tuple(one) for one in seen}) == len(seen) == 6
    # Six binomials of 700 trials: 1,400 records, give or take six deviations.
    assert abs(sum(map(len, seen)) - 1_400) < 6 * 31


REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "shuffled batches": ({"poisson_sampling": False}, "poisson_sampling must be True"),
    "random records for an empty draw": ({"rand_on_empty": True}, "rand_on_empty must be False"),
    "ghost clipping": ({"grad_sample_mode": "ghost"}, "grad_sample_mode must be hooks"),
    "adaptive clipping": ({"clipping": "adaptive"}, "clipping must be flat"),
    "less noise": ({"noise_multiplier": 7.999}, "the plan has noise 8.0"),
    "more records": ({"batch_size": 700}, "the loader draws with probability"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_plan_covers_is_refused_before_a_step(place: Place, name: str) -> None:
    """By name and rule, when the engine is asked: no step is taken, and that is posted."""
    asked, match = REFUSED[name]
    with _bench(place, name.replace(" ", "-")) as bench:
        with pytest.raises(Refusal, match=match):
            bench.private("engine", **asked)
        assert bench.run.budget.taken == 0
    assert _posted(place, name.replace(" ", "-")) == 0


def test_a_hook_of_the_accountant_is_for_the_engine_alone(place: Place) -> None:
    """By hand it could be replaced: refused. An optimiser and a loader made by hand are held, or refused."""
    with _bench(place, "by-hand") as bench:
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
            accountant.hold(bare, DataLoader(bench.records, batch_size=350, shuffle=True))
        bench.loader, bench.optimiser = DPDataLoader(bench.records, sample_rate=0.5), bare
        accountant.hold(bare, bench.loader)
        bare.step_hook = None
        bench.refused()
        assert len(bench.weights) == PLAN.steps
    assert _posted(place, "by-hand") == PLAN.steps


def test_made_private_again_the_optimiser_goes_on_by_the_same_charge(place: Place) -> None:
    """The first loop's updates are refused from then on, the second's take what steps are left."""
    with _bench(place, "again-private") as bench:
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
    assert _posted(place, "again-private") == PLAN.steps


def test_registered_and_never_asked_the_charge_stands(place: Place) -> None:
    """Who then trains by another engine is seen to have taken nothing: nothing is posted, so nothing comes back."""
    with _bench(place, "elsewhere") as bench:
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
        assert not isinstance(loader.batch_sampler, opacus_guards.PoissonDraws)
    charge = place.charge("elsewhere")
    assert charge is not None
    assert charge.state is ChargeState.PENDING


def _follow_from_a_seed(generator: torch.Generator) -> int:
    """How many words of its state are what seeding makes of the word before (Matsumoto and Nishimura 1998, 2002)."""
    words = generator.get_state()[24 : 24 + 8 * 624].view(torch.int64).tolist()
    grown = ((1_812_433_253 * (one ^ one >> 30) + place) & 0xFFFFFFFF for place, one in enumerate(words, start=1))
    return sum(one == other for one, other in zip(words[1:], grown, strict=False))


def test_a_search_over_seeds_finds_no_noise() -> None:
    """PyTorch takes 32 bits of a seed on a CPU: the whole state is drawn, and no two are alike."""
    assert _follow_from_a_seed(torch.Generator().manual_seed(5)) == 623
    ours = [opacus_guards.unseeded(), opacus_guards.unseeded()]
    assert [_follow_from_a_seed(one) for one in ours] == [0, 0]
    first, second = (torch.randn(4_096, generator=one) for one in ours)
    assert not torch.equal(first, second)
    assert abs(float(first.std()) - 1) < 0.1


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_no_seed_repeats_the_noise(place: Place, by: str) -> None:
    """Without a generator of its own an optimiser gets one before its first noise; the same seed, other noise."""
    drawn = list[Tensor]()
    for round_ in range(2):
        with _bench(place, f"seed-{by}-{round_}") as bench:
            bench.records = TensorDataset(torch.zeros(700, 64), torch.zeros(700, dtype=torch.int64))
            bench.private(by)
            bench.backward(next(iter(bench.loader)))
            torch.manual_seed(0)
            bench.optimiser.step()
            noise = bench.model.weight.grad
            assert noise is not None
            drawn.append(noise)
    # Of records of zeros the weights have no gradient: this is noise, and of the plan's deviation.
    assert not torch.equal(*drawn)
    assert all(0.8 * 8 / 350 < float(one.std()) < 1.2 * 8 / 350 for one in drawn)


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_each_lease_has_noise_and_draws_of_its_own(place: Place, by: str) -> None:
    """Of two steps a lease: one generator and one sampler's key for both, others for the next; a given one goes."""
    with _bench(place, f"leased-{by}", step_leases=True, block_steps=2, lease_s=0) as bench:
        bench.private(by)
        draws = bench.loader.batch_sampler
        assert isinstance(draws, opacus_guards.PoissonDraws)
        bench.optimiser.generator = given = torch.Generator().manual_seed(3)
        used = list[tuple[int, torch.Generator, object]]()

        def step() -> None:
            bench.optimiser.step()
            used.append((bench.run.budget.lease, bench.optimiser.generator, draws.randomness))

        bench.refused(step=step)
        bench.run.model_data = b"model"
    assert [lease for lease, _, _ in used] == [1, 1, 2, 2, 3, 3]
    for kept in ([generator for _, generator, _ in used], [key for _, _, key in used]):
        assert all(kept[at] is kept[at + 1] for at in (0, 2, 4))
        assert len({id(one) for one in kept}) == 3
    assert given not in [generator for _, generator, _ in used]
    assert len({generator.initial_seed() for _, generator, _ in used}) == 3
    assert _posted(place, f"leased-{by}") == PLAN.steps


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_a_record_without_a_finite_gradient_adds_nothing(place: Place, by: str) -> None:
    """Every second record is NaN, and every weight is finite after the step."""
    with _bench(place, f"nan-{by}") as bench:
        inputs, targets = bench.records.tensors
        inputs[::2] = torch.nan
        bench.records = TensorDataset(inputs, targets)
        bench.private(by)
        bench.backward(next(iter(bench.loader)))
        bench.optimiser.step()
        assert bool(bench.model.weight.isfinite().all())


def test_a_step_lighter_in_noise_or_denser_is_refused(place: Place) -> None:
    """Less noise or a higher sampling rate than was charged: refused, and no step is taken for it."""
    with _bench(place, "other") as bench:
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
    assert _posted(place, "other") == 1


def test_a_plan_over_users_is_not_for_opacus(tmp_path: Path) -> None:
    """It was priced for users that are clipped as one, and Opacus clips records."""
    over_users = structs.replace(PLAN, unit="user")
    with (
        open_place(tmp_path / "place", unit="user") as of_users,
        _bench(of_users, "users", over_users) as bench,
        pytest.raises(Refusal, match="the plan's unit is the user"),
    ):
        bench.private("ours")


def test_the_page_s_code_runs_as_it_stands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/loops/opacus.md, beside a job: every step of the plan is taken and posted, and the model leaves."""
    monkeypatch.chdir(place.folder)
    text = place.assignment_file("opacus-page", PLAN).read_text().replace("../", "")
    (place.folder / "job.toml").write_text(text)
    (code,) = (one.text for one in blocks(Path(__file__).parents[3] / "docs" / "loops" / "opacus.md"))
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "opacus.md", "exec"), names)  # noqa: S102 - our own page
    assert _posted(place, "opacus-page") == PLAN.steps
    assert (place.folder / "runs" / "opacus-page" / "model.safetensors").exists()


# Opacus says so of its own accountant at an ε this small.
@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha:UserWarning")
def test_the_local_way_is_no_longer_than_opacus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/local.md, local.md below: both side by side, each run as it stands, with the counts that the page states."""
    page = Path(__file__).parents[3] / "docs" / "local.md"
    ours, alone = (one.text for one in blocks(page) if one.language == "python" and "randn" in one.text)
    lines = [len([line for line in one.splitlines() if line]) for one in (ours, alone)]
    told = " ".join(page.read_text(encoding="utf-8").split())
    assert f"by Opacus alone takes {lines[1]} lines; the first example above takes {lines[0]}" in told
    assert lines[0] <= lines[1] + 3
    shown: list[float] = []
    monkeypatch.setattr("builtins.print", shown.append)
    exec(compile(alone, "local.md", "exec"), {"__name__": "page"})  # noqa: S102 - our own page
    assert 0 < shown[0] <= 0.75


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
