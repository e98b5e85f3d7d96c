"""Precisions, and the margins below the clipping norm that cover rounding.

``float32`` (the default) and ``bfloat16`` clip to C(1 - 2^-10), ``float64`` to C(1 - 2^-16); what each margin
covers is stated, with the proof, in ``engine``. In ``bfloat16`` the model runs under autocast; its outputs and
their gradients are widened to float32, which is exact, before a norm or a product is taken of them.

``bfloat16_products`` is the same but for matrices: both factors of a linear layer's gradient are rounded to bfloat16.
Norms are taken of these numbers, and these are multiplied, on a GPU by its tensor cores (``tensor_core_product``). What
enters a sum of products is bounded with the errors of that unit. It clips to C(1 - 2^-8): what products over several
records round, which no precision but ``float64`` proves, is four times as coarse here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import torch

from ledger.wire.malformed import Malformed
from trainer_adapter.gpu_kernels.tensor_core_product import ACCUMULATION_UNIT, WEIGHTED_UNIT


@dataclass(frozen=True, slots=True)
class Precision:
    """One way to compute.

    Attributes:
        work: what norms and products are taken in.
        autocast: what the model runs in where that is not float32.
        unit: the unit roundoff of ``work``.
        tiny: its least normal number; what underflows is off by no more, subnormals flushed or not.
        margin: the share of C that is left for rounding.
        clipping_norm_min: below it what underflows could count.
        exact_sums: whether only those kernels are taken whose terms cannot cancel inside one record, so that
            sums over records are covered too.
        product: what the factors of a matrix's gradient are rounded to before they are multiplied; None: not at all.
    """

    name: str
    work: torch.dtype
    autocast: torch.dtype | None
    unit: float
    tiny: float
    margin: Fraction
    clipping_norm_min: Fraction
    exact_sums: bool
    product: torch.dtype | None = None

    def gamma(self, roundings: int) -> float:
        """The relative error that so many roundings can add up to: ku / (1 - ku) (Higham 2002, lemma 3.1)."""
        return roundings * self.unit / (1 - roundings * self.unit)

    def of_products(self, roundings: int) -> float:
        """What a term of weight times product may be off by, relative, where so many additions follow.

        On tensor cores both parts of a weighted number pass them, which are (1 + 2^-7) times as long at most.
        """
        if self.product is None:
            return self.gamma(roundings)
        added = roundings * ACCUMULATION_UNIT / (1 - roundings * ACCUMULATION_UNIT)
        return added * (1 + 2.0**-7) + WEIGHTED_UNIT


_SINGLE: Final = (2.0**-24, 2.0**-126, Fraction(1, 1 << 10), Fraction(1, 1 << 40))
_TENSOR_CORES: Final = (2.0**-24, 2.0**-125, Fraction(1, 1 << 8), Fraction(1, 1 << 40))
_DOUBLE: Final = (2.0**-53, 2.0**-1022, Fraction(1, 1 << 16), Fraction(1, 1 << 200))
PRECISIONS: Final = {
    "float32": Precision("float32", torch.float32, None, *_SINGLE, exact_sums=False),
    "bfloat16": Precision("bfloat16", torch.float32, torch.bfloat16, *_SINGLE, exact_sums=False),
    "bfloat16_products": Precision(
        "bfloat16_products",
        torch.float32,
        torch.bfloat16,
        *_TENSOR_CORES,
        exact_sums=False,
        product=torch.bfloat16,
    ),
    "float64": Precision("float64", torch.float64, None, *_DOUBLE, exact_sums=True),
}


def precision_of(name: str) -> Precision:
    """The precision of that name. Raises: Malformed."""
    if name not in PRECISIONS:
        raise Malformed("precision", f"must be one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]
