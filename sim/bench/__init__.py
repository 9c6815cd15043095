"""Benchmarks: what the engine costs, beside the thesis and beside baselines measured in the same run."""
