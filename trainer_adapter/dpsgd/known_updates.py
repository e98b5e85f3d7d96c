"""Optimisers whose update the tail of a step makes itself, piece by piece: SGD, Adam and AdamW as PyTorch has them.

The operations on a value are those of PyTorch's own loops over tensors (``foreach`` and ``fused`` unset), in their
order. PyTorch fuses a product and a sum into one rounding where it works on whole vectors of the processor, and may not
at the ends of a thread's share: there the two may differ by one rounding of float32. What is not plainly one of
these three, or has hooks, a scheduler's wrapper or state of another form, updates by itself as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import optimizer as hooks

from trainer_adapter.gpu_kernels import weight_update
from trainer_adapter.gpu_kernels.weight_update import WeightUpdate

_KINDS: Final[dict[type[Optimizer], int]] = {
    SGD: weight_update.SGD,
    Adam: weight_update.ADAM,
    AdamW: weight_update.ADAM,
}
_OTHER_FORMS: Final = ("foreach", "fused", "capturable", "differentiable", "amsgrad")


def known_kind(optimiser: Optimizer, parameters: Iterable[Tensor]) -> int | None:
    """Which rule updates these parameters, or None where only the optimiser itself can."""
    kind = _KINDS.get(type(optimiser))
    hooked = (
        optimiser._optimizer_step_pre_hooks,  # noqa: SLF001 - torch says it nowhere else, nor the three below
        optimiser._optimizer_step_post_hooks,  # noqa: SLF001 - as above
        hooks._global_optimizer_pre_hooks,  # noqa: SLF001 - as above
        hooks._global_optimizer_post_hooks,  # noqa: SLF001 - as above
    )
    # A scheduler puts a step of its own in the optimiser's place.
    if kind is None or "step" in vars(optimiser) or any(hooked):
        return None
    groups = _groups(optimiser)
    plain = all(_is_plain(group) for group in optimiser.param_groups)
    return kind if plain and all(_fits(value, groups, optimiser.state) for value in parameters) else None


def begin_updates(optimiser: Optimizer, parameters: Iterable[Tensor]) -> list[WeightUpdate]:
    """One step of an optimiser of a known kind: its state made or counted on, its rule for each parameter, in order."""
    groups, of_sgd = _groups(optimiser), type(optimiser) is SGD
    return [(_begin_sgd if of_sgd else _begin_adam)(optimiser.state, value, groups[id(value)]) for value in parameters]


def apply(update: WeightUpdate, kind: int, place: slice, gradient: Tensor) -> None:
    """Update the values of a weight at ``place``, flat, on the CPU; ``gradient``, float32, is used up."""
    rule: Callable[[WeightUpdate, slice, Tensor], None] = _sgd if kind == weight_update.SGD else _adam
    rule(update, place, gradient)


def _groups(optimiser: Optimizer) -> dict[int, dict[str, Any]]:
    return {id(value): group for group in optimiser.param_groups for value in group["params"]}


def _is_plain(group: Mapping[str, Any]) -> bool:
    numbers = [value for name, value in group.items() if name not in {"params", *_OTHER_FORMS}]
    return not any(group.get(name) for name in _OTHER_FORMS) and not any(isinstance(one, Tensor) for one in numbers)


def _fits(value: Tensor, groups: Mapping[int, Any], state: Mapping[Tensor, Mapping[str, Any]]) -> bool:
    moments = [part for name, part in state.get(value, {}).items() if name != "step" and part is not None]
    shaped = all(part.shape == value.shape and part.dtype == value.dtype for part in moments)
    return id(value) in groups and shaped and all(part.is_contiguous() for part in (value, *moments))


def _begin_sgd(state: Mapping[Tensor, dict[str, Any]], value: Tensor, group: Mapping[str, Any]) -> WeightUpdate:
    sign, momentum = (-1.0 if group["maximize"] else 1.0), float(group["momentum"])
    moment, new = None, 0.0
    if momentum != 0:
        moment = state[value].get("momentum_buffer")
        if moment is None:
            new, moment = 1.0, torch.empty_like(value)
            state[value]["momentum_buffer"] = moment
    undamped, nesterov = 1 - float(group["dampening"]), float(group["nesterov"])
    rule = (sign, float(group["weight_decay"]), momentum, undamped, nesterov, new, float(group["lr"]), 0.0, 0.0)
    return WeightUpdate(value.detach(), None if moment is None else moment.detach(), None, rule)


def _begin_adam(state: Mapping[Tensor, dict[str, Any]], value: Tensor, group: Mapping[str, Any]) -> WeightUpdate:
    known = state[value]
    if not known:
        known["step"] = torch.tensor(0.0, dtype=torch.get_default_dtype())
        known["exp_avg"], known["exp_avg_sq"] = torch.zeros_like(value), torch.zeros_like(value)
    known["step"] += 1
    step, (beta1, beta2) = float(known["step"]), group["betas"]
    rate, decay, decoupled = float(group["lr"]), float(group["weight_decay"]), group["decoupled_weight_decay"]
    shrink = 1 - rate * decay if decoupled else 1.0
    rule = (
        -1.0 if group["maximize"] else 1.0,
        0.0 if decoupled else decay,
        shrink,
        1 - beta1,
        float(beta2),
        1 - beta2,
        rate / (1 - beta1**step),
        (1 - beta2**step) ** 0.5,
        float(group["eps"]),
    )
    return WeightUpdate(value.detach(), known["exp_avg"], known["exp_avg_sq"], rule)


def _sgd(update: WeightUpdate, place: slice, gradient: Tensor) -> None:
    sign, decay, momentum, undamped, nesterov, new, rate, *_ = update.factors
    weight = update.weight.view(-1)[place]
    if sign < 0:
        gradient.neg_()
    if decay:
        gradient.add_(weight, alpha=decay)
    if update.first is not None:
        moment = update.first.view(-1)[place]
        if new:
            moment.copy_(gradient)
        else:
            moment.mul_(momentum).add_(gradient, alpha=undamped)
        gradient = gradient.add_(moment, alpha=momentum) if nesterov else moment
    weight.add_(gradient, alpha=-rate)


def _adam(update: WeightUpdate, place: slice, gradient: Tensor) -> None:
    sign, decay, shrink, new1, keep2, new2, rate, root, epsilon = update.factors
    assert update.first is not None
    assert update.second is not None
    weight, mean, square = (part.view(-1)[place] for part in (update.weight, update.first, update.second))
    if sign < 0:
        gradient.neg_()
    if shrink != 1:
        weight.mul_(shrink)
    if decay:
        gradient.add_(weight, alpha=decay)
    mean.lerp_(gradient, new1)
    square.mul_(keep2).addcmul_(gradient, gradient, value=new2)
    weight.addcdiv_(mean, square.sqrt().div_(root).add_(epsilon), value=-rate)
