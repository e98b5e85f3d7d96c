"""Dropout in the engine: each record's masks are its own, whoever else is in the batch and however it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from inspect import getclosurevars
from typing import Any, Final

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.layer_models import CLASSES, RECORDS, Does, Make, numbers, parameter, words
from tests.trainer_adapter.neighbours import contributions, replay
from tests.trainer_adapter.reference_dropout import kept
from trainer_adapter.cli.train import accuracy
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.self_check import SelfCheckFailed
from trainer_adapter.per_sample.rounding_margins import PRECISIONS

PLAN: Final = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 3), 10, 4)
UNCLIPPED: Final = structs.replace(PLAN, clipping_norm=Fraction(10**6))
ALL: Final = np.arange(RECORDS)
Mask = Callable[[float, Tensor], Tensor]


def _perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Dropout(0.2),
        nn.Linear(5, 6),
        nn.Tanh(),
        nn.Dropout(0.5),
        Does(lambda m, x: m.scale * x, scale=parameter(6)),  # no rule takes it: once for each record
        nn.Dropout(0.0),
        nn.Linear(6, CLASSES),
    )


def _perceptron_by_hand(m: Any, x: Tensor, mask: Mask) -> Tensor:  # noqa: ANN401 - as Does
    h = m[1](mask(0.2, x)).tanh()
    logits: Tensor = m[6](m[4](mask(0.5, h)))
    return logits


def _channels() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.Dropout2d(0.5), nn.GELU(), nn.Flatten(), nn.Linear(54, CLASSES))


def _channels_by_hand(m: Any, x: Tensor, mask: Mask) -> Tensor:  # noqa: ANN401 - as Does
    h = m[0](x)
    logits: Tensor = m[4](functional.gelu(h * mask(0.5, torch.ones(1, 6, 1, 1, dtype=h.dtype))).flatten(1))
    return logits


def _attentive() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
    return Does(
        lambda m, x: m.head(m.layer(m.table(x)).mean(1)),
        table=nn.Embedding(9, 8),
        layer=layer,
        head=nn.Linear(8, CLASSES),
    )


def _attentive_by_hand(m: Any, x: Tensor, mask: Mask) -> Tensor:  # noqa: ANN401 - as Does
    layer, h = m.layer, m.table(x)
    parts = functional.linear(h, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias)
    q, k, v = parts.reshape(1, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
    weights = mask(0.1, (q @ k.mT / math.sqrt(4)).softmax(dim=-1))
    mixed = layer.self_attn.out_proj((weights @ v).transpose(1, 2).flatten(2))
    h = layer.norm1(h + mask(0.1, mixed))
    inner = mask(0.1, layer.linear1(h).relu())
    h = layer.norm2(h + mask(0.1, layer.linear2(inner)))
    logits: Tensor = m.head(h.mean(1))
    return logits


def _recurrent() -> nn.Module:
    layer = nn.GRU(3, 5, 2, dropout=0.5, bidirectional=True, batch_first=True)
    return Does(lambda m, x: m.head(m.layer(x)[0][:, -1]), layer=layer, head=nn.Linear(10, CLASSES))


def _recurrent_by_hand(m: Any, x: Tensor, mask: Mask) -> Tensor:  # noqa: ANN401 - as Does
    """PyTorch's own function, one layer at a time, and what drops between."""
    weights = [getattr(m.layer, name) for name in m.layer._flat_weights_names]  # noqa: SLF001 - it has no other name
    start = torch.zeros(2, 1, 5, dtype=x.dtype)
    h = torch.gru(x, start, weights[:8], True, 1, 0.0, True, True, True)[0]  # noqa: FBT003 - PyTorch's signature
    h = mask(0.5, h.transpose(0, 1)).transpose(0, 1)
    h = torch.gru(h, start, weights[8:], True, 1, 0.0, True, True, True)[0]  # noqa: FBT003 - as above
    logits: Tensor = m.head(h[:, -1])
    return logits


def _in_turn() -> nn.Module:
    return Does(_write, inner=nn.Linear(5, 5), drop=nn.Dropout(0.5), head=nn.Linear(15, CLASSES))


def _write(m: Does, x: Tensor) -> Tensor:
    y = torch.zeros(len(x), 3, 5)
    for at in range(3):
        y[:, at] = m.drop(m.inner(x[:, at]))
    logits: Tensor = m.head(y.flatten(1))
    return logits


def _in_turn_by_hand(m: Any, x: Tensor, mask: Mask) -> Tensor:  # noqa: ANN401 - as Does
    y = torch.stack([mask(0.5, m.inner(x[:, at])) for at in range(3)], dim=1)
    logits: Tensor = m.head(y.flatten(1))
    return logits


MODELS: Final = {
    "perceptron": (_perceptron, _perceptron_by_hand, numbers(5)),
    "channels": (_channels, _channels_by_hand, numbers(2, 5, 5)),
    "attentive": (_attentive, _attentive_by_hand, words()),
    "recurrent": (_recurrent, _recurrent_by_hand, numbers(4, 3)),
    "in turn": (_in_turn, _in_turn_by_hand, numbers(3, 5)),
}


def _reference(name: str, model: nn.Module, keys: list[int]) -> Tensor:
    """Each record's gradient in float64, its masks worked out by hand, shape (records, parameters)."""
    _, by_hand, (inputs, targets) = MODELS[name]
    exact, rows = deepcopy(model).double(), []
    for record, key in enumerate(keys):
        calls = iter(range(99))

        def mask(p: float, value: Tensor, key: int = key, calls: Any = calls) -> Tensor:  # noqa: ANN401 - an iterator
            stays = kept(key, next(calls), tuple(value.shape), p)
            return value * stays / (1 - round(p * 65536) / 65536)

        one = inputs[record : record + 1]
        scores = by_hand(exact, one.double() if one.is_floating_point() else one, mask)
        loss = cross_entropy(scores, targets[record : record + 1])
        rows.append(torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(exact.parameters()))]))
    return torch.stack(rows)


def _made(make: Make) -> nn.Module:
    torch.manual_seed(11)
    return make()


@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "float32") for name in MODELS), ("channels", "float64"), ("attentive", "bfloat16")],
)
def test_gradients_are_those_of_masks_applied_by_hand(name: str, precision: str) -> None:
    """Record by record, against plain PyTorch in float64 whose masks come from the step's keys in plain integers."""
    make, _, data = MODELS[name]
    model = _made(make)
    engine = Engine(UNCLIPPED, model, cross_entropy, data, 4, precision=precision)
    keys = engine.keys(3, CsprngRandomness(bytes(32)))
    assert keys is not None
    stream = CsprngRandomness(bytes(32)).stream("dropout", 3)
    assert keys.tolist() == [int.from_bytes(stream.take(8), "little") for _ in range(RECORDS)]
    ours, theirs = contributions(engine, ALL, keys), _reference(name, model, keys.tolist())
    apart = (ours - theirs).norm(dim=1) / theirs.norm(dim=1)
    assert apart.max() < (0.1 if precision == "bfloat16" else 3e-5)


def test_a_compiled_graph_drops_the_same() -> None:
    """Compiled or as it is: the same masks, so the same sum up to the order of terms; a NaN counts for nothing."""
    model = _made(lambda: nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, CLASSES)))
    data, keys = numbers(5), _keys()
    eager, compiled = (Engine(PLAN, model, cross_entropy, data, 4, compiled=yes) for yes in (False, True))
    for bad in (False, True):
        if bad:
            data[0][2] = torch.nan
        sums = [engine.clipped_sum(engine.microbatches(ALL), keys) for engine in (eager, compiled)]
        assert torch.isfinite(sums[1]).all()
        assert (sums[0] - sums[1]).norm() < 1e-6 * sums[0].norm()


def _keys(count: int = RECORDS) -> Any:  # noqa: ANN401 - an array of words
    return CsprngRandomness(bytes(32)).stream("dropout", 1).words(count)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_neighbours_differ_in_one_contribution(precision: str) -> None:
    """The same step on the same randomness, one record zeroed, huge or not a number: no other's masks move."""
    data = numbers(5)
    changed = (data[0].clone(), data[1])
    model = _made(_perceptron)
    ours, theirs = (Engine(PLAN, model, cross_entropy, one, 4, precision=precision) for one in (data, changed))
    seen = set()
    for place, value in ((1, 0.0), (4, 1e20), (5, float("nan"))):
        changed[0].copy_(data[0])
        changed[0][place] = value
        for step in (1, 2, 3):
            found = replay(ours, theirs, step, *(CsprngRandomness(bytes(32)) for _ in range(2)))
            assert found.differ == ((place,) if place in found.drawn else ())
            assert found.moved <= 2 * float(PLAN.clipping_norm)
            seen.add(place in found.drawn)
    assert seen == {True, False}


def test_who_else_is_drawn_changes_nobodys_masks() -> None:
    """Drawn alone, with some or with all, in microbatches of any size: each contribution stays the same."""
    model, data, keys = _made(_perceptron), numbers(5), _keys()
    engines = [Engine(PLAN, model, cross_entropy, data, size) for size in (1, 3, 8)]
    whole = contributions(engines[0], ALL, keys)
    for engine in engines:
        for drawn in ([4], [0, 4], [4, 5, 6], ALL.tolist()):
            found = contributions(engine, np.array(drawn), keys)
            assert torch.allclose(found, whole[drawn], rtol=1e-5, atol=1e-7)
            total = engine.clipped_sum(engine.microbatches(np.array(drawn)), keys)
            assert torch.allclose(total, whole[drawn].sum(dim=0), rtol=1e-4, atol=1e-6)


def test_a_record_taken_out_leaves_the_others_what_their_keys_give() -> None:
    """Add-remove: with its key taken out as well, the rest is what it was; keys are independent, so as likely."""
    model, data, keys = _made(_perceptron), numbers(5), _keys()
    whole = contributions(Engine(PLAN, model, cross_entropy, data, 4), ALL, keys)
    fewer = (np.delete(data[0].numpy(), 2, axis=0), np.delete(data[1].numpy(), 2))
    engine = Engine(PLAN, model, cross_entropy, (torch.from_numpy(fewer[0]), torch.from_numpy(fewer[1])), 4)
    rest = contributions(engine, np.arange(RECORDS - 1), np.delete(keys, 2))
    assert torch.allclose(rest, whole[[0, 1, 3, 4, 5, 6]], rtol=1e-5, atol=1e-7)


def test_records_of_one_user_have_masks_of_their_own() -> None:
    """A user's contribution is the sum of the records', each under the key of its place in the partition."""
    model, data, keys = _made(_perceptron), numbers(5), _keys()
    each = contributions(Engine(UNCLIPPED, model, cross_entropy, data, 4), ALL, keys)
    users = torch.tensor([7, 5, 7, 5, 9, 5, 7])
    plan = structs.replace(UNCLIPPED, unit="user")
    engine = Engine(plan, model, cross_entropy, data, 2, users=users, records_per_user_max=2, certify="always")
    found = contributions(engine, np.arange(3), keys)
    for row, mine in zip(found, ([1, 3], [0, 2], [4]), strict=True):
        assert torch.allclose(row, each[mine].sum(dim=0), rtol=1e-4, atol=1e-7)


def test_masks_differ_by_record_and_by_step() -> None:
    """Equal records give other gradients, and the same record another at another step."""
    inputs = torch.ones(RECORDS, 5)
    engine = Engine(UNCLIPPED, _made(_perceptron), cross_entropy, (inputs, torch.zeros(RECORDS, dtype=torch.int64)), 4)
    randomness = CsprngRandomness(bytes(32))
    first, second = (contributions(engine, ALL, engine.keys(step, randomness)) for step in (1, 2))
    rows = torch.cat([first, second])
    assert len({tuple(row.tolist()) for row in rows}) == 2 * RECORDS


def test_a_step_gives_the_same_after_a_fresh_start() -> None:
    """After others or first, whatever PyTorch's generator holds (it is not touched): the same weights bit by bit."""
    data, model, secret = numbers(5), _made(_perceptron), bytes(range(32))
    engine, optimiser = Engine(PLAN, model, cross_entropy, data, 4), torch.optim.SGD(model.parameters(), lr=0.5)
    randomness = CsprngRandomness(secret)
    engine.step(1, optimiser, randomness)
    kept_now = deepcopy(model)
    before = torch.get_rng_state()
    engine.step(2, optimiser, randomness)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(999)
    again = Engine(PLAN, kept_now, cross_entropy, data, 4)
    again.step(2, torch.optim.SGD(kept_now.parameters(), lr=0.5), CsprngRandomness(secret))
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), kept_now.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["probability 0", "a part in evaluation mode"])
def test_what_drops_nothing_costs_nothing(kind: str) -> None:
    """The graph is that of the model without the layer, and no key is drawn."""
    plain = _made(lambda: nn.Sequential(nn.Linear(5, 6), nn.Identity(), nn.Linear(6, CLASSES)))
    layer = nn.Dropout(0.0) if kind == "probability 0" else nn.Dropout(0.5).eval()
    model = nn.Sequential(plain[0], layer, plain[2])  # type: ignore[index] # a Sequential
    engines = [Engine(PLAN, one, cross_entropy, numbers(5), 4) for one in (model, plain)]
    graphs: list[Any] = [getclosurevars(one._sum._run).nonlocals["run"] for one in engines]  # noqa: SLF001 - the graph
    assert graphs[0].code == graphs[1].code
    randomness = CsprngRandomness(bytes(32))
    assert engines[0].keys(1, randomness) is None
    randomness.stream("dropout", 1)
    sums = [engine.clipped_sum(engine.microbatches(ALL)) for engine in engines]
    assert torch.equal(sums[0], sums[1])
    assert layer.training == (kind == "probability 0")


def test_a_sum_without_keys_is_refused() -> None:
    """A model that drops something never does by chance with the same masks for all."""
    engine = Engine(PLAN, _made(_perceptron), cross_entropy, numbers(5), 4)
    with pytest.raises(Malformed, match=r"^keys: are needed: the model drops something"):
        engine.clipped_sum(engine.microbatches(ALL))


def test_a_model_evaluated_between_steps_goes_on_dropping() -> None:
    """Evaluation mode between steps changes neither what a step does nor what checks it, and is left as it was."""
    models = [_made(_perceptron) for _ in range(2)]
    for evaluated, model in enumerate(models):
        engine = Engine(PLAN, model, cross_entropy, numbers(5), 4, certify="always")
        optimiser, randomness = torch.optim.SGD(model.parameters(), lr=0.5), CsprngRandomness(bytes(32))
        for step in (1, 2):
            if evaluated:
                model.eval()
            engine.step(step, optimiser, randomness)
            assert model.training != bool(evaluated)
    assert all(torch.equal(*pair) for pair in zip(*(model.parameters() for model in models), strict=True))


def test_another_rate_behind_the_engines_back_is_noticed() -> None:
    """The check recomputes records with the layer as it is now: what was traced dropped otherwise."""
    model = _made(_perceptron)
    engine = Engine(PLAN, model, cross_entropy, numbers(5), 4, certify="always")
    model[3].p = 0.1  # type: ignore[index] # a Sequential
    with pytest.raises(SelfCheckFailed):
        engine.step(1, torch.optim.SGD(model.parameters(), lr=0.5), CsprngRandomness(bytes(32)))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_record_exceeds_the_clipping_norm(precision: str) -> None:
    """What is kept is scaled up before clipping: within C, exactly, at a rate of nine tenths too."""
    model = _made(lambda: nn.Sequential(nn.Linear(5, 40), nn.Dropout(0.9), nn.Linear(40, CLASSES)))
    engine = Engine(PLAN, model, cross_entropy, (numbers(5)[0] * 100, numbers(5)[1]), 4, precision=precision)
    rows = contributions(engine, ALL, _keys())
    lengths = [sum(Fraction(value) ** 2 for value in row.tolist()) for row in rows]
    assert max(lengths) <= PLAN.clipping_norm**2
    assert max(lengths) > (PLAN.clipping_norm * Fraction(99, 100)) ** 2


def test_accuracy_on_the_public_set_drops_nothing() -> None:
    """It is the evaluated model's, and leaves the model in the mode it was in, part by part."""
    linear = nn.Linear(4, 4)
    nn.init.eye_(linear.weight)
    nn.init.zeros_(linear.bias)
    model = nn.Sequential(nn.Dropout(1.0), linear.eval())
    test = (torch.eye(4), torch.arange(4))
    assert accuracy(model, test) == 1.0
    assert [module.training for module in model.modules()] == [True, True, False]
