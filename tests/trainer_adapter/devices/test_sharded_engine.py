"""Ranks that train together: the sum, the noise and the bits of one process; what ends one ends all."""

from __future__ import annotations

import hashlib
import os
import signal
import traceback
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.audit_bound import epsilon_least
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.canary_coordinates import Coordinates
from tests.trainer_adapter.devices.forked_ranks import forked
from trainer_adapter.devices.following_run import FollowingRun
from trainer_adapter.devices.rank_group import RankGroup, RankLost
from trainer_adapter.devices.sharded_engine import ShardedEngine
from trainer_adapter.devices.shards import ShardRecords, split
from trainer_adapter.devices.step_orders import check_weights
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.noisy_mean import noisy_mean
from trainer_adapter.training.one_run_audit import flip, tally
from trainer_adapter.training.run_options import Options

Data = tuple[Tensor, Tensor]
MakeModel = Callable[[], nn.Module]
SECRET = bytes(range(32))


def _own(ranks: RankGroup, data: Data) -> ShardRecords:
    return list(split(data, None, None, ranks.size))[ranks.rank]


def _engine(ranks: RankGroup, plan: Plan, model: nn.Module, data: Data, precision: str = "float32") -> ShardedEngine:
    return ShardedEngine(ranks, plan, model, cross_entropy, _own(ranks, data), 4, precision=precision)


@pytest.mark.parametrize("size", [2, 4])
def test_the_sum_is_that_of_one_process(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data, size: int
) -> None:
    """Given the same drawn records, in float64: 1e-12 apart at most, and on all ranks the same bits."""
    drawn = np.array([0, 3, 4, 9, 10, 17, 19, 20, 21, 30, 33, 38, 39])

    def work(ranks: RankGroup) -> bytes:
        held, engine = _own(ranks, data), _engine(ranks, plan, make_model(), data, "float64")
        own = drawn[(drawn >= held.shard.first) & (drawn < held.shard.end)] - held.shard.first
        return ranks.total(engine.clipped_sum(engine.microbatches(own))).numpy().tobytes()

    ended = forked(tmp_path, size, work)
    alone = Engine(plan, make_model(), cross_entropy, data, 4, precision="float64")
    expected = alone.clipped_sum(alone.microbatches(drawn)).numpy()
    assert len({one.value for one in ended}) == 1
    found = np.frombuffer(ended[0].value, np.float64)
    assert np.linalg.norm(found - expected) <= 1e-12 * np.linalg.norm(expected)


def _trained(ranks: RankGroup, plan: Plan, model: nn.Module, data: Data, secret: bytes) -> str:
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
    engine = _engine(ranks, plan, nn.Sequential(model, nn.Dropout(0.25)), data)
    randomness = CsprngRandomness(secret, rank=ranks.rank)
    for step in range(1, 4):
        engine.step(step, optimiser, randomness)
    check_weights(ranks, model, 3)
    bits = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
    return hashlib.sha256(bits).hexdigest()


def test_parameters_have_the_same_bits_on_all_ranks_and_in_two_runs(
    tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data
) -> None:
    """Three steps of AdamW with dropout; another key gives another model."""

    def work(ranks: RankGroup) -> tuple[str, str, str]:
        first, second, other = (
            _trained(ranks, plan, make_model(), data, secret) for secret in (SECRET, SECRET, SECRET[::-1])
        )
        return first, second, other

    values = [one.value for one in forked(tmp_path, 2, work)]
    assert values[0] == values[1]
    first, second, other = values[0]
    assert first == second != other


def test_noise_is_drawn_once(tmp_path: Path, make_model: MakeModel, data: Data) -> None:
    """Where no record enters, each rank's gradient is the noise that one process draws from the same key."""
    rare = Plan(Fraction(1, 10**9), Fraction(2), Fraction(1, 2), 3, 10)

    def work(ranks: RankGroup) -> bytes:
        model = make_model()
        engine = _engine(ranks, rare, model, data)
        engine.set_gradients(1, CsprngRandomness(SECRET, rank=ranks.rank))
        return (
            torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])
            .numpy()
            .tobytes()
        )

    alone = Engine(rare, make_model(), cross_entropy, data, 4)
    stream = CsprngRandomness(SECRET).stream("noise", 1)
    expected = noisy_mean(torch.zeros(alone.size), stream, alone.noise_std, rare.batch_size_expected)
    assert [one.value for one in forked(tmp_path, 2, work)] == [expected.numpy().tobytes()] * 2


def test_ranks_share_their_noise_and_nothing_else() -> None:
    """Batches and masks come from keys of each rank's own, none of which is that of a process alone."""
    words = {
        purpose: [CsprngRandomness(SECRET, rank=rank).stream(purpose, 1).words(4).tobytes() for rank in (None, 0, 1, 2)]
        for purpose in ("sampler", "noise", "dropout")
    }
    assert len(set(words["noise"])) == 1
    assert len({*words["sampler"], *words["dropout"]}) == 8


CANARIES, GUESSES, DELTA = 10_000, 400, Fraction(1, 10**5)
AUDITED = Plan(Fraction(1), Fraction(2), Fraction(1), 1, 1)


def test_the_audit_passes_two_ranks_and_catches_half_of_their_noise(tmp_path: Path) -> None:
    """One full step: the plan's noise proves less than the ledger's ε, half of it more."""
    included = flip(CsprngRandomness(SECRET[::-1]).stream("sampler", 1), CANARIES)
    which = torch.from_numpy(np.flatnonzero(included))
    data = (which, torch.full((len(which),), 10.0))

    def work(ranks: RankGroup) -> list[bytes]:
        found = []
        for part in (1.0, 0.5):
            model = Coordinates(CANARIES)
            held = list(split(data, None, None, ranks.size))[ranks.rank]
            engine = ShardedEngine(ranks, AUDITED, model, lambda out, target: -(out.squeeze(-1) * target), held, 256)
            engine.noise_std = engine.noise_std * part
            engine.step(1, torch.optim.SGD(model.parameters(), lr=1.0), CsprngRandomness(SECRET, rank=ranks.rank))
            found.append(model.weights.weight.detach()[:, 0].to(torch.float64).numpy().tobytes())
        return found

    whole, half = (
        epsilon_least(tally(np.frombuffer(scores, np.float64), included, GUESSES), DELTA)
        for scores in forked(tmp_path, 2, work)[0].value
    )
    promised = reported_epsilon(AUDITED.whole, DELTA, "ADD_OR_REMOVE_ONE")
    assert promised / 4 < whole < promised < half


def test_a_rank_that_dies_ends_the_others(tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Killed inside its second step: the others' next message fails, and says in which step."""

    def work(ranks: RankGroup) -> None:
        model = make_model()
        engine, randomness = _engine(ranks, plan, model, data), CsprngRandomness(SECRET, rank=ranks.rank)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        engine.step(1, optimiser, randomness)
        if ranks.rank == 2:
            engine.draw(2, randomness)
            os.kill(os.getpid(), signal.SIGKILL)
        engine.step(2, optimiser, randomness)

    ended = forked(tmp_path, 3, work)
    assert [one.status for one in ended] == [256, 256, signal.SIGKILL]
    assert all("devices: a rank was lost in or after step 2" in one.value for one in ended[:2])


def test_a_rank_that_breaks_is_named_on_all(tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Its device fails inside the sum of a step: every rank says which, in which step, and quotes nothing."""

    def work(ranks: RankGroup) -> None:
        engine = _engine(ranks, plan, make_model(), data)

        def fail(*_: object) -> None:
            raise RuntimeError("device lost: Mrs Rao, 47")

        if ranks.rank == 1:
            engine._summed = fail  # type: ignore[assignment, method-assign]  # noqa: SLF001 - as a device that is lost
        engine.set_gradients(1, CsprngRandomness(SECRET, rank=ranks.rank))

    words = "RankLost: devices: rank 1 failed in step 1 (RuntimeError); its message may quote a record"
    assert [one.value for one in forked(tmp_path, 2, work)] == [words] * 2


def test_what_a_model_raises_on_a_rank_is_shown_by_none(tmp_path: Path, make_model: MakeModel, data: Data) -> None:
    """Its Python sees a record where steps are recomputed: neither words nor tracebacks of any rank quote it."""
    whole = Plan(Fraction(1), Fraction(2), Fraction(1, 2), 12, 40)

    def work(ranks: RankGroup) -> str:
        model = make_model()

        def look(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            if ranks.rank == 1 and args[0].abs().sum() > 50:
                raise AssertionError("Mrs Rao, 47")

        engine = ShardedEngine(ranks, whole, model, cross_entropy, _own(ranks, data), 4, certify="first_step")
        # Where the model was traced it looked at no value: from here on it does.
        model.register_forward_pre_hook(look)
        try:
            engine.set_gradients(1, CsprngRandomness(SECRET, rank=ranks.rank))
        except RankLost as error:
            return "".join(traceback.format_exception(error))
        return ""

    ended = forked(tmp_path, 2, work)
    words = "devices: rank 1 failed in step 1 (AssertionError); its message may quote a record"
    assert all(words in one.value and "Mrs Rao" not in one.value for one in ended), ended


def test_a_rank_beside_rank_0_fails_in_our_words(tmp_path: Path, plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Whatever raises in its step, and of whichever class."""

    def work(ranks: RankGroup) -> str:
        def fail(*_: object) -> None:
            raise AssertionError("Mrs Rao, 47")

        none: Any = None
        model = make_model()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        optimiser.register_step_pre_hook(fail)
        run = FollowingRun(model, optimiser, cross_entropy, none, Options(), ranks)
        run._engine = _engine(ranks, plan, model, data)  # noqa: SLF001 - as rank 0's charge opens it
        run._randomness = CsprngRandomness(SECRET, rank=ranks.rank)  # noqa: SLF001 - as rank 0 sends it
        try:
            run._take(1, update=True)  # noqa: SLF001 - a step as rank 0 orders it
        except Malformed as error:
            return "".join(traceback.format_exception(error))
        return ""

    ended = forked(tmp_path, 2, work)
    words = "step: 1 failed (AssertionError); its message may quote a record"
    assert all(words in str(one.value) and "Mrs Rao" not in one.value for one in ended), ended


def test_other_weights_on_a_rank_are_found(tmp_path: Path, make_model: MakeModel) -> None:
    """One bit of one weight, changed on one rank."""

    def work(ranks: RankGroup) -> None:
        model = make_model()
        if ranks.rank == 1:
            with torch.no_grad():
                weight = next(model.parameters()).view(-1)
                weight[0] = torch.nextafter(weight[0], torch.tensor(9.0))
        check_weights(ranks, model, 5)

    words = "RankLost: devices: rank 1 holds other weights than rank 0 after step 5"
    assert [one.value for one in forked(tmp_path, 2, work)] == [words] * 2
