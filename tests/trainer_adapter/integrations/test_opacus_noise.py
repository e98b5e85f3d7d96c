"""Noise and draws of Opacus under a charge: of the plan, fresh, and of no seed."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.integrations.opacus_bench import PLAN, WARNINGS, bench_of, posted_steps
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus_batches
from trainer_adapter.integrations.opacus_generator import unseeded

pytestmark = WARNINGS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


def test_records_are_drawn_with_the_plans_own_probability(place: Place) -> None:
    """A third, which no float64 is: never above it, by ChaCha20, however the loader was made and PyTorch seeded."""
    third = Plan(Fraction(1, 3), Fraction(8), Fraction(1), 6, 233)
    seen: list[list[int]] = []
    for by in ("ours", "engine"):
        with bench_of(place, f"third-{by}", third) as bench:
            bench.private(by, batch_size=234)
            torch.manual_seed(0)
            draws = bench.loader.batch_sampler
            assert isinstance(draws, opacus_batches.PoissonDraws)
            assert Fraction(draws.sample_rate) <= third.sampling_probability
            assert len(bench.loader) == 3
            seen.extend(draws)
            bench.refused()
            assert len(bench.weights) == third.steps
    assert len({tuple(one) for one in seen}) == len(seen) == 6
    # Six binomials of 700 trials: 1,400 records, give or take six deviations.
    assert abs(sum(map(len, seen)) - 1_400) < 6 * 31


def _follow_from_a_seed(generator: torch.Generator) -> int:
    """How many words of its state are what seeding makes of the word before (Matsumoto and Nishimura 1998, 2002)."""
    words = generator.get_state()[24 : 24 + 8 * 624].view(torch.int64).tolist()
    grown = ((1_812_433_253 * (one ^ one >> 30) + place) & 0xFFFFFFFF for place, one in enumerate(words, start=1))
    return sum(one == other for one, other in zip(words[1:], grown, strict=False))


def test_a_search_over_seeds_finds_no_noise() -> None:
    """PyTorch takes 32 bits of a seed on a CPU: the whole state is drawn, and no two are alike."""
    assert _follow_from_a_seed(torch.Generator().manual_seed(5)) == 623
    ours = [unseeded(), unseeded()]
    assert [_follow_from_a_seed(one) for one in ours] == [0, 0]
    first, second = (torch.randn(4_096, generator=one) for one in ours)
    assert not torch.equal(first, second)
    assert abs(float(first.std()) - 1) < 0.1


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_no_seed_repeats_the_noise(place: Place, by: str) -> None:
    """Without a generator of its own an optimiser gets one before its first noise; the same seed, other noise."""
    drawn = list[Tensor]()
    for round_ in range(2):
        with bench_of(place, f"seed-{by}-{round_}") as bench:
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
    with bench_of(place, f"leased-{by}", step_leases=True, block_steps=2, lease_s=0) as bench:
        bench.private(by)
        draws = bench.loader.batch_sampler
        assert isinstance(draws, opacus_batches.PoissonDraws)
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
    assert posted_steps(place, f"leased-{by}") == PLAN.steps


@pytest.mark.parametrize("by", ["ours", "engine"])
def test_a_record_without_a_finite_gradient_adds_nothing(place: Place, by: str) -> None:
    """Every second record is NaN, and every weight is finite after the step."""
    with bench_of(place, f"nan-{by}") as bench:
        inputs, targets = bench.records.tensors
        inputs[::2] = torch.nan
        bench.records = TensorDataset(inputs, targets)
        bench.private(by)
        bench.backward(next(iter(bench.loader)))
        bench.optimiser.step()
        assert bool(bench.model.weight.isfinite().all())
