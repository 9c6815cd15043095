"""Kernels are compiled once each: another combination of argument types would cost seconds, at a bad moment."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from tests.broker.test_engine_machine import storm
for seed in (1, 2, 3):
    storm(seed)
kernels = 0
for name, module in list(sys.modules.items()):
    if name.startswith("hullcast."):
        for function in vars(module).values():
            kernels += hasattr(function, "signatures")
            if len(getattr(function, "signatures", ())) > 1:
                print(f"{function.__module__}.{function.__name__}: {function.signatures}")
assert kernels > 20, kernels
"""


def test_no_kernel_is_compiled_for_a_second_combination_of_types() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
