"""Randomness of a run: ChaCha20 (RFC 8439) under fresh keys, one nonce for each purpose and step.

A run draws 32 bytes from the operating system; HKDF-SHA256 (RFC 5869) makes one key of them for each purpose
(``sampler``, ``noise``, ``dropout``); the step number is the nonce. A (purpose, step) is opened once, in rising
order, so no piece of keystream is ever added to two different sums: an observer of both would learn their exact
difference.

What this protects against: guessing a seed, or the state of a statistical generator, from released noise;
replaying noise after a crash (a new process has new keys). What it does not: the noise is a continuous
Gaussian rounded to float64, its low bits depend on the sum it is added to (Mironov 2012, "On significance of
the least significant bits for differential privacy"; Jin et al. 2021, arXiv 2112.05307). Adding in float64
and releasing in float32 hides most of those bits; it proves nothing. Box-Muller over 53-bit uniforms also
ends at 8.57 standard deviations, where a Gaussian has 1e-17 of its mass left. Side channels of time and
memory are out of scope.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, SupportsIndex, TypeAlias

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from trainer_adapter.session.hardware_secret import hardware_secret

Purpose: TypeAlias = Literal["sampler", "noise", "dropout"]

SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 12
STREAM_BYTES_MAX: Final = 1 << 37
"""Half of what RFC 8439's 32-bit block counter can number (2^32 blocks of 64 bytes): it never wraps."""
PAIRS_AT_ONCE: Final = 1 << 14
"""Normals are drawn in pieces of so many pairs, which stay in a core's caches; a multiple of a keystream block's 4."""
_ZEROS: Final = memoryview(bytes(16 * PAIRS_AT_ONCE))
_INFO: Final = b"epsilon-ledger/trainer/v1/"


class NonceReused(RuntimeError):  # noqa: N818 - named for what happened, as the other refusals are
    """A stream was opened twice, or out of order; nothing was drawn."""


class Stream:
    """The keystream of one purpose and step, read from its beginning and only forwards."""

    def __init__(self, key: bytes, nonce: bytes, counter: int = 0, most: int = STREAM_BYTES_MAX) -> None:
        """Open it: a key of 32 bytes, a nonce of 12, the number of the first block (64 bytes), bytes at most.

        Raises:
            ValueError: for another length of key or nonce.
        """
        if len(key) != SECRET_BYTES or len(nonce) != NONCE_BYTES:
            raise ValueError("a stream takes a key of 32 bytes and a nonce of 12")
        start = counter.to_bytes(4, "little") + nonce
        self._cipher = Cipher(algorithms.ChaCha20(key, start), mode=None).encryptor()
        self._left = most
        self._from = (key, nonce, counter)

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes of keystream. Raises: OverflowError, once the stream would be too long."""
        if count > self._left:
            raise OverflowError(f"this stream gives at most {self._left} more bytes")
        self._left -= count
        return self._cipher.update(bytes(count))

    def fill(self, words: NDArray[np.uint64]) -> None:
        """The same into an array, shape (count,), of which nothing is kept. Raises: OverflowError, ValueError.

        Args:
            words: at most :data:`PAIRS_AT_ONCE` pairs.
        """
        if words.nbytes > min(self._left, len(_ZEROS)):
            raise OverflowError(f"this stream gives at most {min(self._left, len(_ZEROS))} more bytes at once")
        self._left -= words.nbytes
        self._cipher.update_into(_ZEROS[: words.nbytes], words.data.cast("B"))

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` independent uniform 64-bit words, shape (count,). Raises: OverflowError."""
        return np.frombuffer(self.take(8 * count), dtype="<u8").astype(np.uint64, copy=False)

    def normals(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Independent standard normals in float64, by Box and Muller (1958).

        The radius takes a uniform in (0, 1], never 0, the angle one in [0, 1); both have 53 bits.

        Raises:
            OverflowError: once the stream would be too long.
        """
        count = math.prod(shape)
        normals, buffer = torch.empty(count, dtype=torch.float64), PieceBuffer()
        for piece in self.pieces(count):
            for place, values in piece.normals(buffer):
                normals[place] = values
        result: NDArray[np.float64] = normals.reshape(shape).numpy()
        return result

    def pieces(self, count: int) -> list[NormalPiece]:
        """All normals of a stream that was not read, in pieces that are drawn each by itself, once.

        The stream gives nothing else from here on: what follows would depend on how many there were.

        Raises:
            OverflowError: if the stream would be too long. ValueError: if it was read.
        """
        pairs = self._given_away(count)
        key, nonce, counter = self._from
        starts = range(0, pairs, PAIRS_AT_ONCE)
        sizes = (min(PAIRS_AT_ONCE, pairs - start) for start in starts)
        return [
            NormalPiece(Stream(key, nonce, counter + start // 4, 16 * size), start, size, pairs, count)
            for start, size in zip(starts, sizes, strict=True)
        ]

    def seed(self, count: int) -> bytes:
        """Key and nonce, 44 bytes, for a kernel that draws ``count`` normals as :meth:`pieces` would, once.

        The stream gives nothing else from here on.

        Raises:
            OverflowError: if the stream would be too long. ValueError: if it was read, or does not begin at block 0.
        """
        key, nonce, counter = self._from
        if counter:
            raise ValueError("a kernel draws from the first block")
        self._given_away(count)
        return key + nonce

    def _given_away(self, count: int) -> int:
        """Give all normals to others; how many pairs they are."""
        if self._left != STREAM_BYTES_MAX:
            raise ValueError("normals are drawn from a stream's beginning")
        pairs = (count + 1) // 2
        if 16 * pairs > self._left:
            raise OverflowError(f"one stream gives at most {STREAM_BYTES_MAX} bytes")
        self._left = 0
        return pairs


@dataclass(frozen=True, slots=True)
class NormalPiece:
    """Some of a stream's normals: of each pair one in the first half of them all, the other in the second.

    Attributes:
        stream: the piece's own, which ends with it: it cannot be drawn twice.
        start: the first pair. pairs: how many. all_pairs: of all pieces. count: how many normals are wanted in all.
    """

    stream: Stream
    start: int
    pairs: int
    all_pairs: int
    count: int

    def normals(self, buffer: PieceBuffer) -> list[tuple[slice, torch.Tensor]]:
        """Drawn in ``buffer``, float64: where each half belongs, and the half."""
        words = buffer.words[: 2 * self.pairs]
        self.stream.fill(words)
        words >>= np.uint64(11)
        uniforms = buffer.uniforms[: 2 * self.pairs].copy_(torch.from_numpy(words.view(np.int64)))
        radius, angle = uniforms.view(2, self.pairs)
        radius.add_(1.0).mul_(2.0**-53).log_().mul_(-2.0).sqrt_()
        # To multiply by a power of two rounds nothing, so both factors are one.
        angle.mul_(2.0 * math.pi * 2.0**-53)
        cosine = torch.cos(angle, out=buffer.cosines[: self.pairs])
        both = cosine.mul_(radius), angle.sin_().mul_(radius)
        halves = (
            slice(start, min(start + self.pairs, self.count)) for start in (self.start, self.all_pairs + self.start)
        )
        return [(place, half[: place.stop - place.start]) for place, half in zip(halves, both, strict=True)]


class PieceBuffer:
    """What one thread draws its pieces in, one after the other: fresh arrays for each take a quarter longer."""

    def __init__(self) -> None:
        self.words = np.empty(2 * PAIRS_AT_ONCE, np.uint64)
        self.uniforms = torch.empty(2 * PAIRS_AT_ONCE, dtype=torch.float64)
        self.cosines = torch.empty(PAIRS_AT_ONCE, dtype=torch.float64)


class CsprngRandomness:
    """The streams of one run, or of one lease of its steps; made anew for each, never stored, never resumed."""

    def __init__(self, secret: bytes, rank: int | None = None) -> None:
        """Derive the keys from 32 secret bytes.

        Args:
            secret: a run of one process uses :meth:`fresh`; tests, and ranks that share one, give it.
            rank: of a run on several devices, which of its ranks this is: each draws batches and dropout from keys of
                its own, and all of them the same noise.

        Raises:
            ValueError: for a secret of another size.
        """
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
        purposes: tuple[Purpose, ...] = ("sampler", "noise", "dropout")
        own = "" if rank is None else f"/rank/{rank}"
        self._keys = {one: _derive(secret, one if one == "noise" else f"{one}{own}") for one in purposes}
        self._opened: dict[Purpose, int] = dict.fromkeys(purposes, 0)
        self._process: Final = os.getpid()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied or pickled: both would draw the same noise. Raises: NonceReused."""
        raise NonceReused("randomness cannot be copied or pickled: its copy would draw the same noise")

    @classmethod
    def fresh(cls) -> CsprngRandomness:
        """CsprngRandomness from the operating system's generator, and the clocks of this moment."""
        return cls(hardware_secret())

    def stream(self, purpose: Purpose, step: int) -> Stream:
        """Open the stream of a step, counted from 1.

        Raises:
            NonceReused: for a step that is not after every step this purpose opened before, or in a process that was
                forked off, which has the same keys.
        """
        if os.getpid() != self._process:
            raise NonceReused("a process that was forked off has the keys of the one that trains")
        if not self._opened[purpose] < step < 1 << 63:
            raise NonceReused(f"the {purpose} stream of step {step} comes after that of step {self._opened[purpose]}")
        self._opened[purpose] = step
        return Stream(self._keys[purpose], step.to_bytes(NONCE_BYTES, "little"))


def _derive(secret: bytes, purpose: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_INFO + purpose.encode("ascii")).derive(secret)
