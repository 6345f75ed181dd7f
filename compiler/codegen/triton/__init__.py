"""Kernels of the loop IR as Triton: printed, compiled, and launched on CUDA devices."""
