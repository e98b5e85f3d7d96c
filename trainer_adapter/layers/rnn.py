"""Recurrent layers unrolled: PyTorch's one function for all positions, written as products that have gradient rules.

``torch.func.vmap`` has no rule for ``torch.lstm`` and its kin. Written out, each position is a linear layer on the
input and one on the state before, and ``layer_rules`` knows both. The input's share of all positions is one product.
Cells: LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000; projected as in Sak et al.
2014), GRU (Cho et al. 2014, with PyTorch's place for the reset gate) and the plain one of Elman (1990).

Dropout between the layers goes through ``torch.nn.functional.dropout``, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ledger.wire.malformed import Malformed

State: TypeAlias = tuple[Tensor, ...]
"""The hidden state, and an LSTM's cell state after it; each (batch, width)."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """One layer in one direction, as PyTorch orders them: ``input`` (gates * width, d), ``state``, and the rest."""

    input: Tensor
    state: Tensor
    bias_input: Tensor | None = None
    bias_state: Tensor | None = None
    projection: Tensor | None = None

    def of_input(self, x: Tensor) -> Tensor:
        """The input's share of the gates."""
        return functional.linear(x, self.input, self.bias_input)

    def of_state(self, state: State) -> Tensor:
        """The hidden state's share of the gates."""
        return functional.linear(state[0], self.state, self.bias_state)


_Step: TypeAlias = Callable[[Tensor, State, _Weights], State]


def _lstm(given: Tensor, state: State, weights: _Weights) -> State:
    enters, forgets, cell, leaves = (given + weights.of_state(state)).chunk(4, dim=-1)
    cell = forgets.sigmoid() * state[1] + enters.sigmoid() * cell.tanh()
    hidden = leaves.sigmoid() * cell.tanh()
    if weights.projection is not None:
        hidden = functional.linear(hidden, weights.projection)
    return hidden, cell


def _gru(given: Tensor, state: State, weights: _Weights) -> State:
    resets, keeps, new = given.chunk(3, dim=-1)
    resets_state, keeps_state, new_state = weights.of_state(state).chunk(3, dim=-1)
    keeps = (keeps + keeps_state).sigmoid()
    new = (new + (resets + resets_state).sigmoid() * new_state).tanh()
    return (new + keeps * (state[0] - new),)


def _tanh(given: Tensor, state: State, weights: _Weights) -> State:
    return ((given + weights.of_state(state)).tanh(),)


def _relu(given: Tensor, state: State, weights: _Weights) -> State:
    return ((given + weights.of_state(state)).relu(),)


def _layers(step: _Step) -> Callable[..., tuple[Tensor, ...]]:
    """PyTorch's function for all layers and positions, with its signature; its output, then its last states."""

    def run(*arguments: Any) -> tuple[Tensor, ...]:  # noqa: ANN401 - PyTorch's, by position
        x, first, params, has_biases, num_layers, dropout, train, bidirectional, batch_first = arguments
        directions = 2 if bidirectional else 1
        runs = num_layers * directions
        starts = list(zip(*(each.unbind(0) for each in _several(first)), strict=True))
        weights = _weights(params, runs, biases=has_biases)
        x = x.transpose(0, 1) if batch_first else x
        lasts: list[State] = []
        for layer in range(num_layers):
            outputs = []
            for at in range(layer * directions, (layer + 1) * directions):
                output, last = _positions(step, x, starts[at], weights[at], backwards=at % directions == 1)
                outputs.append(output)
                lasts.append(last)
            x = torch.cat(outputs, dim=-1) if bidirectional else outputs[0]
            if dropout and train and layer < num_layers - 1:
                x = functional.dropout(x, dropout, training=True)
        x = x.transpose(0, 1) if batch_first else x
        return (x, *(torch.stack(states) for states in zip(*lasts, strict=True)))

    return run


def _positions(step: _Step, x: Tensor, state: State, weights: _Weights, *, backwards: bool) -> tuple[Tensor, State]:
    """One layer in one direction over ``x`` (positions, batch, d)."""
    shares = list(weights.of_input(x).unbind(0))
    hidden = []
    for given in reversed(shares) if backwards else shares:
        state = step(given, state, weights)
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden), state


def _cell(step: _Step) -> Callable[..., Any]:
    """PyTorch's function for one position, with its signature; an LSTM's gives both states."""

    def run(  # noqa: PLR0913, PLR0917 - PyTorch's signature
        x: Tensor,
        state: Tensor | Sequence[Tensor],
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor | State:
        weights = _Weights(w_ih, w_hh, b_ih, b_hh)
        result = step(weights.of_input(x), _several(state), weights)
        return result[0] if isinstance(state, Tensor) else result

    return run


def _several(state: Tensor | Sequence[Tensor]) -> State:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def _weights(params: Sequence[Tensor], runs: int, *, biases: bool) -> list[_Weights]:
    each = len(params) // runs
    no_biases = [] if biases else [None, None]
    starts = range(0, len(params), each)
    return [_Weights(params[at], params[at + 1], *no_biases, *params[at + 2 : at + each]) for at in starts]


_LAYERS: Final[dict[Any, Callable[..., Any]]] = {
    torch.lstm: _layers(_lstm),
    torch.gru: _layers(_gru),
    torch.rnn_tanh: _layers(_tanh),
    torch.rnn_relu: _layers(_relu),
}
_CELLS: Final[dict[Any, Callable[..., Any]]] = {
    torch.lstm_cell: _cell(_lstm),
    torch.gru_cell: _cell(_gru),
    torch.rnn_tanh_cell: _cell(_tanh),
    torch.rnn_relu_cell: _cell(_relu),
}


def unrolled(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:  # noqa: ANN401 - any function of PyTorch's
    """What computes the same as this call from functions that have rules, or None where it is no recurrent layer.

    Raises:
        Malformed: for packed sequences, whose lengths would choose which operations run.
    """
    if function in _LAYERS and not kwargs and len(args) == 9:
        # Packed: the lengths come second, or the start comes third, and a flag ``batch_first`` is not there.
        if isinstance(args[2], Tensor) or isinstance(args[3], (list, tuple)):
            raise Malformed("model", "packs sequences: give a recurrent layer padded ones, all of one length")
        return _LAYERS[function]
    return _CELLS.get(function)


def has_dropout(function: Any, args: Sequence[Any]) -> bool:  # noqa: ANN401 - as above
    """Whether this call has dropout between its layers."""
    return function in _LAYERS and len(args) == 9 and args[4] > 1 and args[5] > 0 and bool(args[6])
