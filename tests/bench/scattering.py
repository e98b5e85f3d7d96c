"""Wavelet scattering of pictures, to second order (Bruna and Mallat 2013, arXiv 1203.1513), J = 2 scales, L = 8 angles.

An image is convolved with Morlet wavelets of scale 2^j and angle πl/L and its modulus taken, twice at rising scale;
each of the 1 + JL + L²J(J-1)/2 = 81 maps is then smoothed by a Gaussian of scale 2^J and read every 2^J pixels. There
is nothing to learn in it, and an image looks at itself only: features are no release and cost no privacy.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import torch
from torch import Tensor

SCALES: Final = 2
ANGLES: Final = 8
PATHS: Final = 1 + SCALES * ANGLES + ANGLES**2 * SCALES * (SCALES - 1) // 2
STRIDE: Final = 1 << SCALES
MARGIN: Final = STRIDE
"""Pixels mirrored on each side, so that what lies at an edge does not meet the opposite one."""
_WIDTH: Final = 0.8
"""Standard deviation of the envelope at scale 1, in pixels; wavelets of neighbouring scales then cover the plane."""
_FREQUENCY: Final = 3 * math.pi / 4
_SLANT: Final = 4 / ANGLES
_PERIODS: Final = 2
"""How many periods to each side a filter is wrapped from; beyond them it is zero in float32."""


def scatter(pictures: Tensor) -> Tensor:
    """Scattering coefficients.

    Args:
        pictures: shape (records, side, side), float; side a multiple of 4 and at least 8.

    Returns:
        Shape (records, 81, side / 4, side / 4), of the pictures' type: the mean, 16 of first and 64 of second order.
    """
    side = pictures.shape[-1]
    if pictures.dim() != 3 or pictures.shape[-2] != side or side % STRIDE or side < 2 * STRIDE:
        raise ValueError(
            f"pictures must have shape (records, side, side), side a multiple of {STRIDE}: {pictures.shape}"
        )
    padded = torch.nn.functional.pad(pictures[:, None], (MARGIN,) * 4, mode="reflect")[:, 0]
    spectrum = torch.fft.fft2(padded)
    fine = [_modulus(spectrum, 0, angle) for angle in range(ANGLES)]
    found = [_read(padded, 1)]
    found += [_read(one, 1) for one in fine]
    found += [_read(_modulus(spectrum, 1, angle), 2) for angle in range(ANGLES)]
    for first in fine:
        spectrum = torch.fft.fft2(first)
        found += [_read(_modulus(spectrum, 1, angle), 2) for angle in range(ANGLES)]
    return torch.stack(found, dim=1)


def _modulus(spectrum: Tensor, scale: int, angle: int) -> Tensor:
    """Of the convolution with one wavelet, at every 2^scale-th pixel: beyond its band there is nothing to keep."""
    product = spectrum * _wavelet(spectrum.shape[-1], scale, angle).to(spectrum.device, spectrum.real.dtype)
    if scale:
        half = product.shape[-1] // 2
        product = product[:, :half] + product[:, half:]
        product = (product[:, :, :half] + product[:, :, half:]) / 4
    kept: Tensor = torch.fft.ifft2(product).abs()
    return kept


def _read(maps: Tensor, step: int) -> Tensor:
    """Maps of every ``step``-th pixel, smoothed by the Gaussian, at every 2^J-th pixel of the picture itself."""
    rows = _gaussian(maps.shape[-1], step).to(maps.device, maps.dtype)
    return rows @ maps @ rows.T


@cache
def _wavelet(size: int, scale: int, angle: int) -> Tensor:
    """A Morlet wavelet's spectrum, which is real, shape (size, size), float64, on ``size`` periodic pixels."""
    width, frequency, turn = _WIDTH * 2**scale, _FREQUENCY / 2**scale, math.pi * angle / ANGLES
    pixels = torch.arange(-_PERIODS * size, (_PERIODS + 1) * size, dtype=torch.float64)
    down, right = torch.meshgrid(pixels, pixels, indexing="ij")
    along = down * math.cos(turn) + right * math.sin(turn)
    across = right * math.cos(turn) - down * math.sin(turn)
    envelope = torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * width**2))
    envelope *= _SLANT / (2 * math.pi * width**2)
    wave = envelope * torch.exp(1j * frequency * along)
    # Less as much of the envelope as makes the mean zero: a flat picture gives nothing.
    wave = wave - envelope * (wave.sum() / envelope.sum())
    periods = 2 * _PERIODS + 1
    wrapped: Tensor = torch.fft.fft2(wave.reshape(periods, size, periods, size).sum(dim=(0, 2)))
    return wrapped.real


@cache
def _gaussian(size: int, step: int) -> Tensor:
    """Rows that smooth and read, shape ((size · step - 2 · margin) / 2^J, size), float64; each adds up to 1."""
    width = _WIDTH * 2 ** (SCALES - 1)
    places = torch.arange(MARGIN, size * step - MARGIN, STRIDE, dtype=torch.float64)
    far = torch.arange(0, size * step, step, dtype=torch.float64) - places[:, None]
    whole = size * step
    near = sum(torch.exp(-((far + turn * whole) ** 2) / (2 * width**2)) for turn in range(-_PERIODS, _PERIODS + 1))
    assert isinstance(near, Tensor)
    return near / near.sum(dim=1, keepdim=True)
