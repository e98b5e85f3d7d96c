"""The four networks on which a step is timed; on a GPU in their published sizes, on a CPU in smaller ones.

All of layers that every engine measured knows: no tied weights, no bare parameter, GroupNorm instead of BatchNorm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, relu, scaled_dot_product_attention

CLASSES: Final = 10


@dataclass(frozen=True)
class Sizes:
    """What is scaled between a CPU and a GPU; ``told`` says what it is in words.

    Attributes:
        batch: records a step. width: channels, or values a token. depth: blocks a group, or layers. length: tokens.
        dropout: of a transformer's attention and of what its parts add.
    """

    told: str
    batch: int
    width: int = 0
    depth: int = 0
    length: int = 0
    words: int = 0
    dropout: float = 0.0


class Residual(nn.Module):
    """Two 3 by 3 convolutions beside a shortcut (Zagoruyko and Komodakis 2016), normalised in groups."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(8, outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(8, outside)
        self.shortcut = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Shape (records, outside, height / stride, width / stride)."""
        found = self.second_norm(self.second(relu(self.first_norm(self.first(maps)))))
        kept: Tensor = self.shortcut(maps)
        return relu(found + kept)


class Layer(nn.Module):
    """Attention and a feed-forward part, normalised before each (Vaswani et al. 2017; Radford et al. 2019)."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, nn.Dropout(dropout)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Shape (records, length, width)."""
        records, length, width = tokens.shape
        parts = self.asked(self.before(tokens)).view(records, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        rate = self.dropout.p if self.training else 0.0
        mixed = scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=self.causal)
        tokens = tokens + self.dropout(self.out(mixed.transpose(1, 2).reshape(records, length, width)))
        changed: Tensor = tokens + self.dropout(self.down(gelu(self.up(self.between(tokens)))))
        return changed


class Transformer(nn.Module):
    """An encoder that classifies the mean of its tokens, or a decoder that tells each next token."""

    def __init__(self, sizes: Sizes, *, causal: bool) -> None:
        super().__init__()
        heads = max(2, sizes.width // 64)
        self.causal = causal
        self.words, self.places = nn.Embedding(sizes.words, sizes.width), nn.Embedding(sizes.length, sizes.width)
        layers = (Layer(sizes.width, heads, causal=causal, dropout=sizes.dropout) for _ in range(sizes.depth))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words if causal else CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        """Scores (records, classes), or (records, length, words)."""
        places = torch.arange(words.shape[1], device=words.device).repeat(words.shape[0], 1)
        tokens = self.norm(self.layers(self.words(words) + self.places(places)))
        scores: Tensor = self.head(tokens if self.causal else tokens.mean(dim=1))
        return scores


def _cnn(_: Sizes) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, CLASSES),
    )


def _resnet(sizes: Sizes) -> nn.Module:
    widths = [sizes.width, 2 * sizes.width, 4 * sizes.width]
    blocks: list[nn.Module] = []
    inside = 16
    for group, outside in enumerate(widths):
        for place in range(sizes.depth):
            blocks.append(Residual(inside, outside, 2 if group and not place else 1))
            inside = outside
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.GroupNorm(8, 16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inside, CLASSES),
    )


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of records, over tokens too where there are several."""
    return cross_entropy(outputs.flatten(0, -2), targets.flatten())


@dataclass(frozen=True)
class Network:
    """One network, how large it is where, and whether ``jax_networks`` has it."""

    name: str
    make: Callable[[Sizes], nn.Module]
    cpu: Sizes
    gpu: Sizes
    in_jax: bool = True

    def sizes(self, device: torch.device) -> Sizes:
        """Those of this kind of device."""
        return self.gpu if device.type == "cuda" else self.cpu

    def model(self, device: torch.device) -> nn.Module:
        """With the same first weights each time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return self.make(self.sizes(device)).to(device)

    def data(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Made-up records, one batch of them."""
        sizes, generator = self.sizes(device), torch.Generator().manual_seed(2)
        classes = torch.randint(0, CLASSES, (sizes.batch,), generator=generator)
        if not sizes.words:
            side, channels = (28, 1) if self.name == "cnn" else (32, 3)
            shape = (sizes.batch, channels, side, side)
            return torch.rand(shape, generator=generator).to(device), classes.to(device)
        words = torch.randint(0, sizes.words, (sizes.batch, sizes.length + 1), generator=generator)
        targets = words[:, 1:].contiguous() if self.name == "decoder" else classes
        return words[:, :-1].contiguous().to(device), targets.to(device)


def _encoder(sizes: Sizes) -> nn.Module:
    return Transformer(sizes, causal=False)


def _decoder(sizes: Sizes) -> nn.Module:
    return Transformer(sizes, causal=True)


_CNN_SIZE: Final = "26,010 parameters, 28 by 28"
NETWORKS: Final = (
    Network("cnn", _cnn, Sizes(_CNN_SIZE, 256), Sizes(_CNN_SIZE, 4_096)),
    Network(
        "resnet",
        _resnet,
        Sizes("WRN-16-1, 0.18 million parameters, 32 by 32", 32, 16, 2),
        Sizes("WRN-16-4, 2.7 million parameters, 32 by 32", 512, 64, 2),
    ),
    Network(
        "encoder",
        _encoder,
        Sizes("4 layers of 128, 128 tokens", 16, 128, 4, 128, 2_000),
        Sizes("as BERT-base: 12 layers of 768, 128 tokens", 64, 768, 12, 128, 30_522),
    ),
    Network(
        "decoder",
        _decoder,
        Sizes("2 layers of 128, 1,024 tokens", 2, 128, 2, 1_024, 1_000),
        Sizes("as GPT-2 small: 12 layers of 768, 1,024 tokens", 8, 768, 12, 1_024, 50_257),
    ),
)


class Lstm(nn.Module):
    """Words through one LSTM; the mean of its outputs is classified."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words, self.lstm = (
            nn.Embedding(sizes.words, sizes.width),
            nn.LSTM(sizes.width, sizes.width, batch_first=True),
        )
        self.head = nn.Linear(sizes.width, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        """Scores (records, classes)."""
        scores: Tensor = self.head(self.lstm(self.words(words))[0].mean(dim=1))
        return scores


class Gpt2(nn.Module):
    """GPT-2 as Transformers builds it, scaled down, without dropout; its head is its embedding."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        known = {"vocab_size": sizes.words, "n_positions": sizes.length, "n_embd": sizes.width, "n_layer": sizes.depth}
        without = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
        fixed = {"n_head": 4, "use_cache": False, "bos_token_id": 1, "eos_token_id": 1}
        self.core: nn.Module = GPT2LMHeadModel(GPT2Config.from_dict({**known, **without, **fixed}))

    def forward(self, words: Tensor) -> Tensor:
        """Scores (records, length, words)."""
        scores: Tensor = self.core(input_ids=words).logits
        return scores


def _wide(sizes: Sizes) -> nn.Module:
    width = sizes.width
    layers = (nn.Linear(3 * 32 * 32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))
    return nn.Sequential(nn.Flatten(), *layers)


def _other(name: str, make: Callable[[Sizes], nn.Module], sizes: Sizes) -> Network:
    return Network(name, make, sizes, sizes, in_jax=False)


def _resized(network: Network, sizes: Sizes) -> Network:
    return replace(network, cpu=sizes)


ROWS: Final[dict[str, Network]] = {
    "cnn-256": NETWORKS[0],
    "cnn-64": _resized(NETWORKS[0], Sizes(f"{_CNN_SIZE}, batch 64", 64)),
    "resnet-narrow": NETWORKS[1],
    "resnet-wide": _resized(NETWORKS[1], Sizes("WRN-16-2, 0.7 million parameters, 32 by 32, batch 16", 16, 32, 2)),
    "encoder-64": _resized(NETWORKS[2], Sizes("4 layers of 128, 64 tokens", 32, 128, 4, 64, 2_000)),
    "encoder-128": NETWORKS[2],
    "decoder-256": _resized(NETWORKS[3], Sizes("2 layers of 128, 256 tokens", 8, 128, 2, 256, 1_000)),
    "decoder-1024": NETWORKS[3],
    "lstm-32": _other("lstm", Lstm, Sizes("LSTM 64 to 64, 32 words", 64, 64, 1, 32, 2_000)),
    "lstm-64": _other("lstm", Lstm, Sizes("LSTM 128 to 128, 64 words", 64, 128, 1, 64, 2_000)),
    "gpt2-64": _other("decoder", Gpt2, Sizes("GPT-2: 2 layers of 128, 64 tokens, V 8,000", 8, 128, 2, 64, 8_000)),
    "gpt2-256": _other("decoder", Gpt2, Sizes("GPT-2: 2 layers of 128, 256 tokens, V 8,000", 4, 128, 2, 256, 8_000)),
    "wide-1m": _other("wide", _wide, Sizes("3,072 to 300 to 300 to 10, batch 64", 64, 300)),
    "wide-4m": _other("wide", _wide, Sizes("3,072 to 1,024 to 1,024 to 10, batch 64", 64, 1_024)),
}
"""Each network at two sizes, by the name of its row in the table of training speed."""


def with_dropout(network: Network, rate: float) -> Network:
    """The same network, dropping this share."""
    cpu, gpu = (replace(sizes, dropout=rate) for sizes in (network.cpu, network.gpu))
    return replace(network, cpu=cpu, gpu=gpu)
