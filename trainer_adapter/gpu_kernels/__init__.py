"""Kernels for a GPU, in Triton: the noise and the update of a step in one pass; interpreted on a CPU by the tests."""
