"""Compile the kernels before they are needed."""
