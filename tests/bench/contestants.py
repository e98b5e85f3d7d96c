"""One step of training by each engine that ours is timed against: the same records, weights, loss, C and noise.

A step is forward, backward, clipping, noise and the update by SGD, on one batch that is always the same. Ours draws it
anew from a cryptographic generator (every record enters at probability 1), and its noise is ChaCha20's; the others'
noise comes from statistical generators, and they are handed the batch. Opacus lends its own layers, and its ghost mode
its own loss; JAX-Privacy gets the network of ``jax_networks``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from itertools import count
from typing import Any, Final

import torch
from torch import Tensor, nn

from ledger.mechanisms.plan import Plan
from tests.bench.jax_networks import apply, weights
from tests.bench.networks import Network, Sizes, loss
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.per_sample.graph_execution import Compiled

RATE: Final = 0.05
CLIPPING_NORM: Final = 1.0


@dataclass(frozen=True)
class Contestant:
    """An engine at its mark.

    Attributes:
        step: one step. memory: the most bytes it holds at once in a step beside weights and data, where an engine
        tells that itself; else it is measured.
    """

    name: str
    step: Callable[[], object]
    memory: Callable[[], int] | None = None


def _sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=RATE)


def plain(network: Network, device: torch.device, *, compiled: bool = False) -> Contestant:
    """Training without privacy."""
    model, (inputs, targets) = network.model(device), network.data(device)
    optimiser, forward = _sgd(model), torch.compile(model) if compiled else model

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss(forward(inputs), targets).backward()
        optimiser.step()

    return Contestant(f"non-private, {'compiled' if compiled else 'eager'}", step)


def ours(
    network: Network, device: torch.device, *, compiled: Compiled = False, precision: str = "float32"
) -> Contestant:
    """The project's engine, as a run uses it."""
    model, (inputs, targets) = network.model(device), network.data(device)
    batch = len(inputs)
    plan = Plan(Fraction(1), Fraction(1), Fraction(CLIPPING_NORM), 1_000_000, batch)
    engine = Engine(plan, model, loss, (inputs, targets), batch, compiled=compiled, precision=precision)
    optimiser, randomness, numbers = _sgd(model), CsprngRandomness(bytes(32)), count(1)

    def step() -> None:
        engine.step(next(numbers), optimiser, randomness)

    reported = "" if precision == "float32" else f", {precision}"
    return Contestant(f"ours, {'compiled' if engine.compiled else 'eager'}{reported}", step)


def vmapped(network: Network, device: torch.device) -> Contestant:
    """PyTorch's own ``vmap`` of ``grad``: every record's whole gradient, clipped, summed, with noise."""
    model, (inputs, targets) = network.model(device), network.data(device)
    now = {name: value.detach() for name, value in model.named_parameters()}

    def of_one(values: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        return loss(torch.func.functional_call(model, values, (record.unsqueeze(0),)), target.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0), randomness="different")

    def step() -> None:
        found = gradients(now, inputs, targets)
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in found.values()]).norm(dim=0)
        weights_ = (CLIPPING_NORM / norms.clamp(min=CLIPPING_NORM)).to(inputs.device)
        for name, one in found.items():
            total = torch.tensordot(weights_, one, dims=1)
            noisy = total + CLIPPING_NORM * torch.randn_like(total)
            now[name] = now[name] - RATE * noisy / len(inputs)

    return Contestant("vmap", step)


def opacus(network: Network, device: torch.device, mode: str) -> Contestant:
    """Opacus: ``hooks`` keeps per-record gradients, ``ghost`` takes two backward passes."""
    engine = import_module("opacus").PrivacyEngine()
    model, (inputs, targets) = network.model(device), network.data(device)
    dataset = torch.utils.data.TensorDataset(inputs, targets)
    made = engine.make_private(
        module=model.train(),
        optimizer=_sgd(model),
        criterion=_MeanOfRecords(),
        data_loader=torch.utils.data.DataLoader(dataset, batch_size=len(inputs)),
        noise_multiplier=1.0,
        max_grad_norm=CLIPPING_NORM,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    model, optimiser = made[0], made[1]
    criterion = made[2] if mode == "ghost" else _MeanOfRecords()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        criterion(model(inputs), targets).backward()
        optimiser.step()

    return Contestant(f"Opacus {mode}", step)


class _MeanOfRecords(nn.Module):
    """Cross-entropy; with ``reduction`` none one number a record, as Opacus' ghost mode asks of a criterion."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A number, or shape (records,)."""
        each = nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none")
        each = each.view(len(targets), -1).mean(dim=1)
        return each if self.reduction == "none" else each.mean()


def opake(network: Network, device: torch.device) -> Contestant:
    """Opake: per-record gradients by vmap, clipped as they come."""
    functional, clipping, noise, random = (
        import_module(f"opake.{name}") for name in ("functional", "dpsgd.clipping", "dpsgd.noise", "random")
    )
    model, (inputs, targets) = network.model(device), network.data(device)
    forward, trained, _ = functional.make_functional(model, partition_trainable=True)

    def of_one(values: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        return loss(forward(values, record.unsqueeze(0)), target.unsqueeze(0))

    clipped, state = clipping.clipped_grad(
        of_one, clipping_norm=CLIPPING_NORM, normalize_by=float(len(inputs)), batch_argnums=(1, 2)
    )
    add, noise_state = noise.gaussian_noise(noise_multiplier=1.0, key=random.key(0))
    now: dict[str, Any] = {"values": trained, "clip": state, "noise": noise_state}

    def step() -> None:
        gradients, now["clip"] = clipped(now["values"], inputs, targets, state=now["clip"])
        noisy, now["noise"] = add(gradients, now["noise"])
        found = noisy.pytree
        now["values"] = {name: value.detach() - RATE * found[name] for name, value in now["values"].items()}

    return Contestant("opake", step)


def jax_plain(network: Network, device: torch.device) -> Contestant:
    """JAX without privacy, compiled: what JAX-Privacy starts from."""
    jax, values, inputs, targets = _of_jax(network, device)
    sizes = network.sizes(device)

    def update(now: Any, inputs: Any, targets: Any) -> Any:  # noqa: ANN401 - JAX's own types
        found = jax.grad(lambda one: _jax_loss(network, sizes, one, inputs, targets))(now)
        return jax.tree.map(lambda value, gradient: value - RATE * gradient, now, found)

    return _jax_contestant(jax, "JAX non-private", update, values, (inputs, targets))


def jax_privacy(network: Network, device: torch.device) -> Contestant:
    """JAX-Privacy's clipped gradients and Gaussian noise, compiled."""
    jax, values, inputs, targets = _of_jax(network, device)
    sizes = network.sizes(device)
    clipping, addition = import_module("jax_privacy.clipping"), import_module("jax_privacy.noise_addition")
    clipped = clipping.clipped_grad(
        lambda now, record, target: _jax_loss(network, sizes, now, record, target),
        l2_clip_norm=CLIPPING_NORM,
        normalize_by=float(len(inputs)),
        batch_argnums=(1, 2),
    )
    noise = addition.gaussian_privatizer(stddev=CLIPPING_NORM / len(inputs), prng_key=jax.random.key(0))

    def update(now: Any, inputs: Any, targets: Any) -> Any:  # noqa: ANN401 - JAX's own types
        state, values = now
        noisy, state = noise.update(clipped(values, inputs, targets), state)
        return state, jax.tree.map(lambda value, gradient: value - RATE * gradient, values, noisy)

    return _jax_contestant(jax, "JAX-Privacy", update, (noise.init(values), values), (inputs, targets))


def _of_jax(network: Network, device: torch.device) -> tuple[Any, Any, Any, Any]:
    jax = import_module("jax")
    numbers = import_module("jax.numpy")
    inputs, targets = (numbers.asarray(one.cpu().numpy()) for one in network.data(device))
    return jax, weights(network.model(device)), inputs, targets


def _jax_loss(network: Network, sizes: Sizes, values: Any, inputs: Any, targets: Any) -> Any:  # noqa: ANN401
    nn_of_jax = import_module("jax.nn")
    scores = apply(network, sizes, values, inputs)
    return -(nn_of_jax.log_softmax(scores) * nn_of_jax.one_hot(targets, scores.shape[-1])).sum(axis=-1).mean()


def _jax_contestant(jax: Any, name: str, update: Any, start: Any, batch: Any) -> Contestant:  # noqa: ANN401
    compiled = jax.jit(update).lower(start, *batch).compile()
    now = {"value": start}

    def step() -> None:
        now["value"] = jax.block_until_ready(compiled(now["value"], *batch))

    def memory() -> int:
        reported = compiled.memory_analysis()
        return int(reported.temp_size_in_bytes + reported.output_size_in_bytes)

    return Contestant(name, step, memory)
