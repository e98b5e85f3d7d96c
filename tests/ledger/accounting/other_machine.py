"""Another machine's arithmetic: the same libraries, whose floats differ in their last places.

Another processor, FFT or libm rounds elsewhere. So each transcendental function that dp_accounting and scipy rest on
is wrong here by up to two units in the last place, a transform by 1e-16 of its greatest value besides, and each the
same way for the same argument. The ledger's own code is left alone, but for what it remembers.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
import scipy
from dp_accounting.pld import common

ULPS: Final = 2.0
ABSOLUTE: Final = 1e-16
_NUMPY: Final = ("exp", "expm1", "log", "log1p", "logaddexp")
_MATH: Final = ("exp", "expm1", "log", "log1p")
_SPECIAL: Final = ("erfc", "gammaln", "log_ndtr", "logsumexp", "ndtr")


@contextmanager
def other_machine(seed: int) -> Iterator[None]:
    """Everything within the block is worked out by the machine of this number, from nothing that is remembered."""
    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((np, _NUMPY), (math, _MATH), (scipy.special, _SPECIAL)):
            for name in names:
                patch.setattr(module, name, _Elsewhere(getattr(module, name), seed))
        transform = scipy.fft
        elsewhere = {name: _transform(getattr(transform, name), seed) for name in ("fft", "ifft")}
        patch.setattr(common, "fft", SimpleNamespace(next_fast_len=transform.next_fast_len, **elsewhere))
        for name in ("rfft", "irfft"):
            patch.setattr(transform, name, _transform(getattr(transform, name), seed))
        patch.setattr(scipy.signal, "fftconvolve", _transform(scipy.signal.fftconvolve, seed))
        forget()
        yield
    forget()


def forget() -> None:
    """Everything that the ledger and its policy remember of numbers."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in {"ledger", "policy"}:
            for one in list(vars(module).values()):
                if hasattr(one, "cache_clear"):
                    one.cache_clear()


class _Elsewhere:
    """A function, relatively off by up to so many units in the last place; ``reduce`` and the like are as they were."""

    def __init__(self, function: Callable[..., Any], seed: int) -> None:
        self._function, self._seed = function, seed

    def __call__(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function it stands for
        found = self._function(*given, **named)
        off = found * (1 + ULPS * sys.float_info.epsilon * _chance(found, self._seed))
        return off if isinstance(found, np.ndarray) else type(found)(off)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        return getattr(self._function, name)


def _transform(function: Callable[..., Any], seed: int) -> Callable[..., Any]:
    """The transform, each value off by 1e-16 of the greatest and by some units in its last place."""

    def other(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function it stands for
        found = np.asarray(function(*given, **named))
        unit = ULPS * sys.float_info.epsilon
        chance = _chance(np.real(found), seed)
        return found * (1 + unit * chance) + ABSOLUTE * np.abs(found).max() * chance[::-1]

    return other


def _chance(value: Any, seed: int) -> Any:  # noqa: ANN401 - a float or an array of them
    """A number in [-1, 1) for each value, the same for the same one."""
    if np.ndim(value) == 0:
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return (_mixed(bits, seed) >> 11) / 2.0**52 - 1
    many = np.ascontiguousarray(value, dtype=np.float64).view(np.uint64)
    return (_mixed(many, seed) >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1


def _mixed(bits: Any, seed: int) -> Any:  # noqa: ANN401 - an integer of 64 bits or an array of them
    whole = isinstance(bits, int)
    mixed = bits ^ (seed * 0x9E3779B97F4A7C15 % 2**64 if whole else np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64))
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed = mixed * factor % 2**64 if whole else mixed * np.uint64(factor)
        mixed ^= mixed >> (31 if whole else np.uint64(31))
    return mixed
