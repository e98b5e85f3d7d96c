"""The loss of each next token, whose scores never exist whole: a language model's head and its cross-entropy in one.

The scores of T positions over a vocabulary of V words are the largest tensor of a language model, and a step holds
several of their size. Here they are made some words at a time, in one pass that keeps of each position the greatest
score, the sum of exponentials and the mean of the head's rows under the softmax (Milakov and Gimelshein 2018, arXiv
1805.02867; Dao et al. 2022, arXiv 2205.14135): from these come the loss and its gradient for the position's vector.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import handle_torch_function, has_torch_function

LEFT_OUT: Final = -100
"""The target of a position that has no next token, as of padding; PyTorch's ``ignore_index``."""
WORDS_AT_ONCE: Final = 2_048


def next_token_loss(hidden: Tensor, weight: Tensor, targets: Tensor, words_at_once: int = WORDS_AT_ONCE) -> Tensor:
    """Cross-entropy of each position, float32 or wider, shape (..., positions); 0 where the target is left out.

    In the engine, and without gradients, memory holds scores of ``words_at_once`` words at a time; a plain backward
    pass to ``weight`` makes all of them.

    Args:
        hidden: a vector for each position, (..., positions, width).
        weight: of the head, (words, width), the embedding's own where they are tied.
        targets: the next tokens, (..., positions), integers; -100 leaves a position out.

    Raises:
        IndexError: for a target that is no word, on a CPU.
    """
    given = (hidden, weight, targets)
    if has_torch_function(given):
        result: Tensor = handle_torch_function(
            next_token_loss, given, hidden, weight, targets, words_at_once=words_at_once
        )
        return result
    if torch.is_grad_enabled() and weight.requires_grad:
        scores = _wide(hidden) @ _wide(weight).T
        flat = functional.cross_entropy(scores.flatten(0, -2), targets.flatten(), reduction="none")
        return flat.reshape(targets.shape)
    return chunked_loss(hidden, weight, targets, words_at_once)[0]


def chunked_loss(hidden: Tensor, weight: Tensor, targets: Tensor, words_at_once: int) -> tuple[Tensor, Tensor]:
    """The losses, through which a gradient reaches ``hidden`` alone; and the logarithm of each position's sum.

    Raises: IndexError, as above.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        vectors, rows = _wide(hidden), _wide(weight).detach()
        fixed, (counts, known) = vectors.detach(), counted(targets)
        # The dictionary's own function: under vmap, too, it refuses what is no word.
        targeted = functional.embedding(known, rows)
        greatest, total, mean = _softmax(fixed, rows, words_at_once)
        logarithm = greatest + total.log()
        losses = logarithm - (fixed * targeted).sum(dim=-1)
        slope = mean / total[..., None] - targeted
        # Zero, with the gradient that the loss has: nothing of the scores is kept for a backward pass.
        losses = losses + ((vectors - fixed) * slope).sum(dim=-1)
        return torch.where(counts, losses, 0.0), logarithm


def _softmax(vectors: Tensor, rows: Tensor, words_at_once: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each position the greatest score g, the sum of exp(score - g), and that of exp(score - g) times the row."""
    greatest: Tensor | None = None
    total: Tensor | None = None
    mean: Tensor | None = None
    for start in range(0, len(rows), words_at_once):
        chunk = rows[start : start + words_at_once]
        scores = vectors @ chunk.T
        most = scores.amax(dim=-1) if greatest is None else torch.maximum(greatest, scores.amax(dim=-1))
        weights = (scores - most[..., None]).exp()
        part, moved = weights.sum(dim=-1), weights @ chunk
        if greatest is None or total is None or mean is None:
            greatest, total, mean = most, part, moved
        else:
            shrunk = (greatest - most).exp()
            greatest, total, mean = most, total * shrunk + part, mean * shrunk[..., None] + moved
    assert greatest is not None
    assert total is not None
    assert mean is not None
    return greatest, total, mean


def counted(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Which positions have a next token, and that token; 0 where there is none."""
    counts = targets != LEFT_OUT
    return counts, torch.where(counts, targets, torch.zeros_like(targets))


def _wide(value: Tensor) -> Tensor:
    return value if value.dtype == torch.float64 else value.to(torch.float32)
