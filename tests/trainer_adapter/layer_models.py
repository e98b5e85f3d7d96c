"""Small models, one for each kind of layer and each way in which a parameter can be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import orthogonal, weight_norm

Data: TypeAlias = tuple[Tensor, Tensor]
Make: TypeAlias = Callable[[], nn.Module]

RECORDS: Final = 7
CLASSES: Final = 4


def numbers(*shape: int) -> Data:
    """Seven records of public random numbers."""
    return torch.randn((RECORDS, *shape), generator=torch.Generator().manual_seed(3)), torch.arange(RECORDS) % CLASSES


def words() -> Data:
    """Seven records of six words out of nine."""
    public = torch.Generator().manual_seed(3)
    return torch.randint(9, (RECORDS, 6), generator=public), torch.arange(RECORDS) % CLASSES


class Does(nn.Module):
    """Its parts, and what is done with them."""

    def __init__(self, body: Callable[[Does, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.body = body
        for name, part in parts.items():
            setattr(self, name, part)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401 - one of its parts

    def forward(self, x: Tensor) -> Tensor:
        """Whatever it was given to do."""
        return self.body(self, x)


class Folded(nn.Module):
    """A linear layer the way GPT-2 writes it: ``addmm`` over positions folded into the batch."""

    def __init__(self, wide: int, tall: int) -> None:
        super().__init__()
        self.weight, self.bias = parameter(wide, tall), parameter(tall)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (..., tall)."""
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).reshape(*x.shape[:-1], -1)


class Adapter(nn.Module):
    """A frozen linear layer with a trained correction of low rank beside it (Hu et al. 2021, LoRA)."""

    def __init__(self, wide: int, tall: int, *, merged: bool = False) -> None:
        super().__init__()
        self.public = nn.Linear(wide, tall).requires_grad_(requires_grad=False)
        self.down, self.up, self.merged = parameter(2, wide), parameter(tall, 2), merged

    def forward(self, x: Tensor) -> Tensor:
        """The frozen layer's output and the correction's."""
        if self.merged:
            return functional.linear(x, self.public.weight + self.up @ self.down, self.public.bias)
        y: Tensor = self.public(x) + functional.linear(functional.linear(x, self.down), self.up)
        return y


def parameter(*shape: int) -> nn.Parameter:
    """Random, from torch's generator."""
    return nn.Parameter(torch.randn(shape))


def _flat(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, CLASSES))


def _twice(layer: nn.Module, width: int) -> nn.Module:
    return _flat(layer, nn.Tanh(), layer, width=width)


def _table(padding: int | None = None) -> nn.Embedding:
    return nn.Embedding(9, 8, padding)


def _read(body: Callable[[Does, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> nn.Module:
    return Does(body, table=_table(), head=nn.Linear(8, CLASSES), **parts)


def _bias_alone() -> nn.Module:
    model = _flat(nn.Linear(5, 6), width=6)
    for name, value in model.named_parameters():
        value.requires_grad = name.endswith("bias")
    return model


def _tied_by_module() -> nn.Module:
    table, out = _table(), nn.Linear(8, 9, bias=False)
    out.weight = table.weight
    return Does(lambda m, x: m.out(torch.tanh(m.table(x))).mean(dim=1)[:, :CLASSES], table=table, out=out)


def _tied_by_function(m: Does, x: Tensor) -> Tensor:
    return functional.linear(torch.tanh(m.table(x)), m.table.weight).mean(dim=1)[:, :CLASSES]


def _with_first(m: Does, x: Tensor) -> Tensor:
    y: Tensor = m.head(torch.cat([m.first.expand(len(x), -1, -1), m.table(x)], dim=1).tanh().mean(dim=1))
    return y


def _attend(m: Does, x: Tensor) -> Tensor:
    h, causal = m.table(x), nn.Transformer.generate_square_subsequent_mask(6)
    y, _ = m.attention(h, h, h, attn_mask=causal, need_weights=False)
    logits: Tensor = m.head(y.mean(dim=1))
    return logits


def _attend_first(m: Does, x: Tensor) -> Tensor:
    h = m.table(x).transpose(0, 1)
    logits: Tensor = m.head(m.attention(h, h, h)[0].mean(dim=0))
    return logits


def _attend_elsewhere(m: Does, x: Tensor) -> Tensor:
    h = m.table(x)
    logits: Tensor = m.head(m.attention(h, h.flip(1), h.flip(1))[0].mean(dim=1))
    return logits


def _attend_by_hand(m: Does, x: Tensor) -> Tensor:
    q, k, v = m.qkv(m.table(x)).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    logits: Tensor = m.head(y.transpose(1, 2).flatten(2).mean(dim=1))
    return logits


def _heads(**options: bool) -> nn.Module:
    return nn.MultiheadAttention(8, 2, **options)


def _layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)


def _behind(m: Does, x: Tensor) -> Tensor:
    y = functional.linear(x, m.w)
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - nobody sees what happens in here
        return y + functional.linear(x.tanh(), m.w)


def _frames(m: Does, x: Tensor) -> Tensor:
    logits: Tensor = m.out(m.conv(x.flatten(0, 1)).unflatten(0, (-1, 3)).flatten(1))
    return logits


def _ring(mode: Literal["circular", "reflect"]) -> nn.Module:
    return _flat(nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode), width=75)


def _last(layer: nn.Module, width: int = 5) -> nn.Module:
    """Read from left to right, the last output told."""
    return Does(lambda m, x: m.head(m.layer(x)[0][:, -1]), layer=layer, head=nn.Linear(width, CLASSES))


def _last_first(layer: nn.Module) -> nn.Module:
    """Positions before records, the last states told."""
    return Does(lambda m, x: m.head(m.layer(x.transpose(0, 1))[1][-1]), layer=layer, head=nn.Linear(5, CLASSES))


def _by_cell(m: Does, x: Tensor) -> Tensor:
    state = None
    for at in range(x.shape[1]):
        state = m.cell(x[:, at], state)
    logits: Tensor = m.head(state[0] if isinstance(state, tuple) else state)
    return logits


def _cell(cell: nn.Module) -> nn.Module:
    return Does(_by_cell, cell=cell, head=nn.Linear(5, CLASSES))


def _from(m: Does, x: Tensor) -> Tensor:
    start = (m.hidden.expand(-1, len(x), -1).contiguous(), m.kept.expand(-1, len(x), -1).contiguous())
    logits: Tensor = m.head(m.layer(x, start)[0].mean(dim=1))
    return logits


def _tagger(m: Does, x: Tensor) -> Tensor:
    logits: Tensor = m.head(m.layer(m.table(x))[0][:, -1])
    return logits


def _normed(layer: nn.Module, name: str = "weight") -> nn.Module:
    normed: nn.Module = weight_norm(layer, name)
    return normed


def written(m: Does, x: Tensor) -> Tensor:
    """What ``vmap`` cannot do: one record's values are written into a tensor that all of them share."""
    y = torch.zeros(len(x), 3, 5, dtype=x.dtype)
    for at in range(3):
        y[:, at] = m.inner(x[:, at]).tanh()
    logits: Tensor = m.head(y.flatten(1))
    return logits


def writes() -> nn.Module:
    """A model that runs in turn."""
    return Does(written, inner=nn.Linear(5, 5), head=nn.Linear(15, CLASSES))


KINDS: Final[dict[str, tuple[Make, Data]]] = {
    "linear": (lambda: _flat(nn.Linear(5, 6), nn.Tanh(), width=6), numbers(5)),
    "linear without bias": (lambda: _flat(nn.Linear(5, 6, bias=False), width=6), numbers(5)),
    "linear, biases alone train": (_bias_alone, numbers(5)),
    "linear on 3 dimensions": (lambda: _flat(nn.Linear(5, 2), width=6), numbers(3, 5)),
    "linear on 4 dimensions": (lambda: _flat(nn.Linear(5, 2), width=12), numbers(2, 3, 5)),
    "conv1d": (lambda: _flat(nn.Conv1d(2, 3, 3, 2, 1), width=12), numbers(2, 7)),
    "conv2d": (lambda: _flat(nn.Conv2d(2, 3, 3, padding=1), width=75), numbers(2, 5, 5)),
    "conv2d with steps and gaps": (lambda: _flat(nn.Conv2d(2, 3, 2, 2, dilation=2), width=12), numbers(2, 5, 5)),
    "conv2d in groups": (lambda: _flat(nn.Conv2d(4, 6, (3, 1), groups=2), width=90), numbers(4, 5, 5)),
    "conv2d by channel": (lambda: _flat(nn.Conv2d(4, 4, 3, groups=4), width=36), numbers(4, 5, 5)),
    "conv2d, same size": (lambda: _flat(nn.Conv2d(2, 3, (2, 3), padding="same"), width=75), numbers(2, 5, 5)),
    "conv2d, circular": (lambda: _ring("circular"), numbers(2, 5, 5)),
    "conv2d, reflecting": (lambda: _ring("reflect"), numbers(2, 5, 5)),
    "conv2d of frames": (lambda: Does(_frames, conv=nn.Conv2d(2, 1, 3), out=nn.Linear(12, 4)), numbers(3, 2, 4, 4)),
    "conv3d": (lambda: _flat(nn.Conv3d(1, 2, 2), width=16), numbers(1, 3, 3, 3)),
    "transposed conv": (lambda: _flat(nn.ConvTranspose1d(2, 1, 3), width=9), numbers(2, 7)),
    "layer norm": (lambda: _flat(nn.LayerNorm((3, 5)), width=15), numbers(3, 5)),
    "layer norm without bias": (lambda: _flat(nn.LayerNorm(5, bias=False), width=15), numbers(3, 5)),
    "group norm": (lambda: _flat(nn.GroupNorm(2, 4), width=24), numbers(4, 3, 2)),
    "group norm without space": (lambda: _flat(nn.Linear(4, 4), nn.GroupNorm(2, 4), width=4), numbers(4)),
    "instance norm": (lambda: _flat(nn.InstanceNorm1d(4, affine=True), width=12), numbers(4, 3)),
    "rms norm": (lambda: _flat(nn.RMSNorm(5), width=15), numbers(3, 5)),
    "batch norm in evaluation mode": (lambda: _flat(nn.BatchNorm1d(3).eval(), width=15), numbers(3, 5)),
    "prelu": (lambda: _flat(nn.Linear(5, 5), nn.PReLU(5), width=5), numbers(5)),
    "scale": (
        lambda: _flat(Does(lambda m, x: m.s * x + m.t, s=parameter(5), t=parameter(3, 1)), width=15),
        numbers(3, 5),
    ),
    "temperature": (
        lambda: Does(lambda m, x: m.inner(x) * m.s.exp() + m.t, inner=nn.Linear(5, 4), s=parameter(), t=parameter()),
        numbers(5),
    ),
    "bilinear": (lambda: Does(lambda m, x: m.b(x, x), b=nn.Bilinear(3, 3, CLASSES)), numbers(3)),
    "matmul": (lambda: Does(lambda m, x: x @ m.w, w=parameter(3, CLASSES)), numbers(3)),
    "matmul by a transpose": (lambda: Does(lambda m, x: x @ m.w.T, w=parameter(CLASSES, 3)), numbers(3)),
    "where nobody looks": (lambda: Does(_behind, w=parameter(CLASSES, 3)), numbers(3)),
    "addmm": (lambda: _flat(Folded(5, 2), width=6), numbers(3, 5)),
    "one layer twice": (lambda: _twice(nn.Linear(5, 5), 15), numbers(3, 5)),
    "one convolution twice": (lambda: _twice(nn.Conv1d(2, 2, 3, padding=1), 18), numbers(2, 9)),
    "adapter": (lambda: _flat(Adapter(5, 3), width=9), numbers(3, 5)),
    "adapter, merged": (lambda: _flat(Adapter(5, 3, merged=True), width=9), numbers(3, 5)),
    "embedding": (lambda: _flat(_table(), width=48), words()),
    "embedding with padding": (lambda: _flat(_table(-2), width=48), words()),
    "embedding, sparse": (lambda: _flat(nn.Embedding(9, 8, sparse=True), width=48), words()),
    "embedding, tied by module": (_tied_by_module, words()),
    "embedding, tied by function": (lambda: Does(_tied_by_function, table=_table()), words()),
    "positions looked up": (
        lambda: _read(
            lambda m, x: m.head((m.table(x) + m.at(torch.arange(6)[None])).tanh().mean(1)), at=nn.Embedding(6, 8)
        ),
        words(),
    ),
    "positions added": (
        lambda: _read(lambda m, x: m.head((m.table(x) + m.at[:, :6]).tanh().mean(1)), at=parameter(1, 7, 8)),
        words(),
    ),
    "class token": (lambda: _read(_with_first, first=parameter(1, 1, 8)), words()),
    "attention": (lambda: _read(_attend, attention=_heads(batch_first=True)), words()),
    "attention, positions first": (lambda: _read(_attend_first, attention=_heads()), words()),
    "attention elsewhere": (
        lambda: _read(_attend_elsewhere, attention=_heads(batch_first=True, add_bias_kv=True)),
        words(),
    ),
    "attention by hand": (lambda: _read(_attend_by_hand, qkv=nn.Linear(8, 24)), words()),
    "lstm": (lambda: _last(nn.LSTM(3, 5, batch_first=True)), numbers(3, 3)),
    "lstm without biases, projected": (
        lambda: _last(nn.LSTM(3, 5, bias=False, proj_size=2, batch_first=True), 2),
        numbers(3, 3),
    ),
    "lstm, both directions, two layers": (
        lambda: _last(nn.LSTM(3, 5, 2, bidirectional=True, batch_first=True), 10),
        numbers(2, 3),
    ),
    "lstm that starts somewhere": (
        lambda: Does(
            _from,
            layer=nn.LSTM(3, 5, batch_first=True),
            head=nn.Linear(5, CLASSES),
            hidden=parameter(1, 1, 5),
            kept=parameter(1, 1, 5),
        ),
        numbers(2, 3),
    ),
    "lstm of words": (lambda: _read(_tagger, layer=nn.LSTM(8, 8, batch_first=True)), words()),
    "lstm, frozen": (
        lambda: _last(nn.LSTM(3, 5, batch_first=True).requires_grad_(requires_grad=False)),
        numbers(2, 3),
    ),
    "lstm, normed weights": (lambda: _last(_normed(nn.LSTM(3, 5, batch_first=True), "weight_hh_l0")), numbers(2, 3)),
    "gru, both directions": (lambda: _last(nn.GRU(3, 5, bidirectional=True, batch_first=True), 10), numbers(2, 3)),
    "gru, positions first, two layers": (lambda: _last_first(nn.GRU(3, 5, 2)), numbers(2, 3)),
    "rnn": (lambda: _last(nn.RNN(3, 5, 2, batch_first=True)), numbers(2, 3)),
    "rnn, relu": (lambda: _last(nn.RNN(3, 5, nonlinearity="relu", batch_first=True)), numbers(2, 3)),
    "lstm cell": (lambda: _cell(nn.LSTMCell(3, 5)), numbers(2, 3)),
    "gru cell": (lambda: _cell(nn.GRUCell(3, 5)), numbers(2, 3)),
    "rnn cell": (lambda: _cell(nn.RNNCell(3, 5)), numbers(2, 3)),
    "rnn cell, relu": (lambda: _cell(nn.RNNCell(3, 5, nonlinearity="relu")), numbers(2, 3)),
    "weight norm": (lambda: _flat(_normed(nn.Linear(5, 6)), nn.Tanh(), width=6), numbers(5)),
    "weight norm of a convolution": (lambda: _flat(_normed(nn.Conv1d(2, 3, 3)), width=15), numbers(2, 7)),
    "computed scale": (
        lambda: _flat(
            Does(lambda m, x: functional.layer_norm(x, (5,), m.s.exp(), m.t), s=parameter(5), t=parameter(5)), width=15
        ),
        numbers(3, 5),
    ),
    "orthogonal": (lambda: _flat(orthogonal(nn.Linear(5, 5)), width=5), numbers(5)),
    "written in place": (writes, numbers(3, 5)),
    "transformer layer": (lambda: _read(lambda m, x: m.head(m.layer(m.table(x)).mean(1)), layer=_layer()), words()),
}
