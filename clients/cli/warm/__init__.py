"""Compile the kernels before somebody waits for them."""
