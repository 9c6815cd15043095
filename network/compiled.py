"""The one way to compile a function in this project: `@kernel`.

Python touches batches, kernels touch rows. Every kernel is compiled with
the same options, so that any kernel may call any other:

  cache=True           compiled once per machine and kept beside the source; a started process only loads it.
  nogil=True           a kernel lets other threads run; its arrays must therefore have one owner at a time.
  error_model="numpy"  x / 0 is inf or nan as in NumPy, not an exception: no branch in the inner loops.

What a kernel may rely on, and must not forget: indices are not checked (a wrong one corrupts memory, it does
not raise), integers wrap at 64 bits, and each combination of argument types is compiled anew: keep to one
signature (int64, float64, C-contiguous, writable) per kernel. Mind that `np.frombuffer` gives read-only
arrays, which are another type: `np.require(column, requirements="CAW")` at the Python face copies those and
only those. `some_kernel.py_func` is the plain Python function, for a debugger; NUMBA_DISABLE_JIT=1 makes all
plain.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite has no types
from numba import njit, types
from numba.core import cgutils
from numba.core.types import unliteral
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

Function = TypeVar("Function", bound="Callable[..., object]")

_OPTIONS: Any = {"nogil": True, "error_model": "numpy"}
NO_ENTRY: Any = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}  # options that numba's stubs do not know


def kernel(function: Function) -> Function:
    """Compile `function` on its first call; to the type checker it keeps the type it was written with."""
    compiled = njit(cache=True, **_OPTIONS)(function)
    _recompile_when_callees_change(compiled)
    return cast("Function", compiled)  # numba's Dispatcher is untyped; it is called exactly like `function`


def part(function: Function) -> Function:
    """Compile a part of kernels: other kernels call it, Python never does.

    It has no entry points for Python and C, and one version whatever constants it is called with (numba would
    make one for each): together that takes a third of the time to compile. A call from Python would fail.
    """
    return cast("Function", _part(function))


def inlined(function: Function) -> Function:
    """A `part` that is copied into its callers: for the few lines that nearly every row runs through."""
    return cast("Function", _part(function, forceinline=True))


def _part(function: object, **options: Any) -> Any:
    compile_part: Any = njit
    compiled = compile_part(**_OPTIONS, **NO_ENTRY, **options)(function)
    general = getattr(compiled, "get_call_template", None)  # None when jit is disabled
    if general is not None:
        setattr(compiled, "get_call_template", lambda args, kws: general(list(map(_general, args)), kws))  # noqa: B010
    return compiled


def _prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()] + [ir.IntType(32)] * 3)
        function = insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, keep_close, data_cache = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))
        builder.call(function, [address, to_read, keep_close, data_cache])
        return context.get_dummy_value()

    return types.void(array, index), generate


#: prefetch(array, index): ask for the cache line of array[index] without waiting for it. For kernels that know
#: some rows ahead where they will go: waiting for memory is most of what a random update costs.
prefetch: Callable[[npt.NDArray[Any], int], None] = cast("Any", intrinsic(_prefetch))
insert_function: Callable[[Any, Any, str], Any] = cgutils.get_or_insert_function


def _general(argument: Any) -> Any:
    """The type of an argument, without the constant it happens to be."""
    return unliteral(argument)  # type: ignore[no-untyped-call]  # numba has no types here


def _recompile_when_callees_change(compiled: object) -> None:
    """Make the cached code of a kernel depend on all it was compiled from, not only on its own file.

    Numba keys its cache by date and size of the kernel's own file. What the kernel took from other files
    (kernels and parts it calls, constants it froze) may change while that file does not, and the old machine
    code would run on, silently. So the stamp becomes a digest of all of these. Callees are found by name in
    the module's globals: import them by name (`from .search import report`), not through their module.
    """
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)  # private; checked with numba 0.68
    if file is not None:  # it is None when jit is disabled
        sources: set[str] = {repr(file._source_stamp)}
        _collect(compiled, sources, set())
        file._source_stamp = blake2b("\n".join(sorted(sources)).encode(), digest_size=16).hexdigest()


def _collect(compiled: Any, sources: set[str], seen: set[int]) -> None:
    function = compiled.py_func
    if id(function) in seen:
        return
    seen.add(id(function))
    status = Path(function.__code__.co_filename).stat()
    sources.add(f"{function.__module__} {status.st_mtime_ns} {status.st_size}")
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if hasattr(value, "py_func"):
            _collect(value, sources, seen)
        elif isinstance(value, (bool, int, float, str, tuple)):
            sources.add(f"{name} {value!r}")
