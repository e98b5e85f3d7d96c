"""Compile ``noise_step`` for NVIDIA's GPUs, without one: a program of its own, since the tests interpret it."""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trainer_adapter.gpu_kernels.noise_step import LANES, noise_step

POINTERS = {
    "total": "*fp32", "mean": "*fp32", "key": "*i32", "scales": "*fp64", "starts": "*i64", "numbers": "*i64",
    "weights": "*i64", "factors": "*fp64",
}  # fmt: skip
NUMBERS = {"count": "i64", "weights_count": "i32", "skipped": "i32"}


def compiled(capability: int, kind: int, *, aligned: bool, total: str = "*fp32") -> str:
    """The machine's instructions, as text."""
    fixed = {"kind": kind, "aligned": aligned, "piece": 1 << 14, "lanes": LANES}
    signature = {**POINTERS, "total": total, **NUMBERS, **dict.fromkeys(fixed, "constexpr")}
    source = ASTSource(noise_step, signature, constexprs=fixed)
    done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"enable_fp_fusion": False})
    return str(done.asm["ptx"])


def main() -> None:
    """One line for each kernel: what it was compiled for."""
    for capability, kind, aligned, total in (
        (80, 0, True, "*fp64"),
        (90, 1, True, "*fp32"),
        (90, 2, True, "*fp64"),
        (90, 2, False, "*fp32"),
    ):
        text = compiled(capability, kind, aligned=aligned, total=total)
        wide = "div.rn.f64" in text and "fma.rn.f64" in text
        turns = text.count("shf.l.wrap") + text.count("shf.r.wrap") + text.count("prmt")
        sys.stdout.write(f"sm_{capability} kind {kind} aligned {aligned}: float64 {wide}, rotations {turns > 0}\n")


if __name__ == "__main__":
    main()
