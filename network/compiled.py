"""The one way to compile a function in this project: `@kernel`.

Python touches batches, kernels touch rows (DESIGN.md, "The way of an update"). Every kernel is compiled with the
same three options, so that any kernel may call any other:

  cache=True           compiled once per machine and kept beside the source; a started process only loads it.
  nogil=True           a kernel lets other threads run; its arrays must therefore have one owner at a time.
  error_model="numpy"  x / 0 is inf or nan as in NumPy, not an exception: no branch in the inner loops.

What a kernel may rely on, and must not forget: indices are not checked (a wrong one corrupts memory, it does not
raise), integers wrap at 64 bits, and each combination of argument types is compiled anew: keep to one signature
(int64, float64, C-contiguous, writable) per kernel. Mind that `np.frombuffer` gives read-only arrays, which are
another type: `np.require(column, requirements="CAW")` at the Python face copies those and only those.
`some_kernel.py_func` is the plain Python function, for a debugger; NUMBA_DISABLE_JIT=1 makes all of them plain.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar, cast

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., object]")


def kernel(function: Function) -> Function:
    """Compile `function` on its first call; to the type checker it keeps the type it was written with."""
    compiled = njit(cache=True, nogil=True, error_model="numpy")(function)
    return cast("Function", compiled)  # numba's Dispatcher is untyped; it is called exactly like `function`


def part(function: Function) -> Function:
    """Compile a part of kernels: other kernels call it, Python never does.

    Without the entry points for Python and C it compiles in half the time; a call from Python would fail.
    """
    compiled = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return cast("Function", compiled)


def inlined(function: Function) -> Function:
    """A `part` small and hot enough to be copied into each caller."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True}
    compiled = njit(nogil=True, error_model="numpy", **options)(function)
    return cast("Function", compiled)
