"""The features that accuracy is measured on: scattering against its definition, and what it may not see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.bench.features import SIZE, of_pictures
from tests.bench.scattering import ANGLES, PATHS, scatter


def _wavelet(scale: int, angle: int, reach: int) -> Tensor:
    """A Morlet wavelet in space, shape (2·reach+1, 2·reach+1): width 0.8·2^j, frequency (3π/4)/2^j, slant 1/2."""
    side = torch.arange(-reach, reach + 1, dtype=torch.float64)
    down, right = side[:, None], side[None, :]
    turn, width = math.pi * angle / ANGLES, 0.8 * 2**scale
    along = down * math.cos(turn) + right * math.sin(turn)
    squares = along**2 + 0.25 * (down**2 + right**2 - along**2)
    envelope = torch.exp(-squares / (2 * width**2))
    envelope = envelope * 0.5 / (2 * math.pi * width**2)
    wave = envelope * torch.exp(1j * 0.75 * math.pi / 2**scale * along)
    level: Tensor = wave - envelope * (wave.sum() / envelope.sum())
    return level


def _convolve(maps: Tensor, kernel: Tensor) -> Tensor:
    """Circular convolution of (side, side) maps, pixel by pixel of the kernel."""
    reach = kernel.shape[0] // 2
    total = torch.zeros_like(maps, dtype=torch.complex128)
    for down in range(-reach, reach + 1):
        for right in range(-reach, reach + 1):
            total += kernel[down + reach, right + reach] * torch.roll(maps, (down, right), (0, 1))
    return total


def _smoothed(maps: Tensor, scale: int) -> Tensor:
    """By a Gaussian of width 1.6 over the pixels that this scale keeps, then at every fourth pixel of the picture."""
    kept, step = maps[:: 2**scale, :: 2**scale], 4 // 2**scale
    line = torch.exp(-(torch.arange(-12, 13, dtype=torch.float64) ** 2) * 4**scale / (2 * 1.6**2))
    kernel = (line[:, None] * line[None, :] / line.sum() ** 2).to(torch.complex128)
    return _convolve(kept, kernel).real[step:-step:step, step:-step:step]


def test_scattering_is_its_definition() -> None:
    """Paths of every kind, by convolutions written out in space at every pixel."""
    picture = torch.rand((8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    padded = torch.nn.functional.pad(picture[None, None], (4, 4, 4, 4), mode="reflect")[0, 0]
    found = scatter(picture[None])[0]
    first = _convolve(padded, _wavelet(0, 3, 16)).abs()
    second = _convolve(first, _wavelet(1, 6, 16)).abs()
    paths = {
        0: _smoothed(padded, 0),
        1 + 3: _smoothed(first, 0),
        1 + ANGLES + 5: _smoothed(_convolve(padded, _wavelet(1, 5, 16)).abs(), 1),
        1 + 2 * ANGLES + 3 * ANGLES + 6: _smoothed(second, 1),
    }
    for place, expected in paths.items():
        assert torch.allclose(found[place], expected, rtol=1e-6, atol=1e-9), place


def test_a_flat_picture_has_a_mean_and_nothing_else() -> None:
    """Wavelets have mean zero, the Gaussian adds up to one."""
    found = scatter(torch.full((1, 28, 28), 0.7))[0]
    assert found.shape == (PATHS, 7, 7) == (81, 7, 7)
    assert torch.allclose(found[0], torch.full((7, 7), 0.7), atol=1e-5)
    assert float(found[1:].abs().max()) < 1e-5


def test_turning_a_picture_turns_its_coefficients() -> None:
    """A quarter turn moves each first-order map by half of the angles; twice the ink is twice the coefficients."""
    picture = torch.zeros((1, 28, 28))
    picture[0, 10:18, 12:16] = 1.0
    turned = scatter(torch.rot90(picture, 2, (1, 2)))
    plain = scatter(picture)
    energy = plain.sum(dim=(0, 2, 3))
    quarter = scatter(torch.rot90(picture, 1, (1, 2))).sum(dim=(0, 2, 3))
    half = ANGLES // 2
    assert torch.allclose(turned.sum(dim=(0, 2, 3)), energy, rtol=0.05, atol=0.05)
    assert torch.allclose(quarter[1 : 1 + ANGLES].roll(half), energy[1 : 1 + ANGLES], rtol=0.1, atol=0.05)
    assert torch.allclose(scatter(2 * picture), 2 * plain, rtol=1e-4, atol=1e-5)


def test_a_picture_looks_at_itself_only() -> None:
    """The same features alone and among others, so that they are public: no record touches another's."""
    pictures = np.random.default_rng(3).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    together = of_pictures(pictures)
    assert together.shape == (3, SIZE)
    for place in range(3):
        assert np.allclose(of_pictures(pictures[place : place + 1])[0], together[place], atol=1e-5)
    groups = together.reshape(3, 27, -1)
    assert np.allclose(groups.mean(axis=2), 0, atol=1e-4)
    assert 0.1 < float(groups.var(axis=2).min()) <= float(groups.var(axis=2).max()) < 1.0001


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 24), (1, 30, 30), (1, 4, 4)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    """Pictures are square, in a batch, and their side a multiple of four."""
    with pytest.raises(ValueError, match="must have shape"):
        scatter(torch.zeros(shape))
