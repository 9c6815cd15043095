"""The one way to compile a function in this project: `@kernel`.

Python touches batches, kernels touch rows. Every kernel is compiled with
the same options, so that any kernel may call any other:

  cached               compiled once per machine and kept on disk (network/compiling.py); later starts load it.
  nogil=True           a kernel lets other threads run; its arrays must therefore have one owner at a time.
  error_model="numpy"  x / 0 is inf or nan as in NumPy, not an exception: no branch in the inner loops.

What a kernel may rely on, and must not forget: indices are not checked (a wrong one corrupts memory, it does
not raise), integers wrap at 64 bits, and each combination of argument types is compiled again: keep to one
signature (int64, float64, C-contiguous, writable) per kernel. Mind that `np.frombuffer` gives read-only
arrays, which are another type: `np.require(column, requirements="CAW")` at the Python face copies those and
only those. `some_kernel.py_func` is the plain Python function, for a debugger; NUMBA_DISABLE_JIT=1 makes all
plain.

To load numba takes half a second or more, and a client that only publishes and queries never needs it. So a decorated
function is a `Later` at first; the first call of any of them (or `load`) loads numba and puts compiled functions in the
places of all `Later`s.
"""

from __future__ import annotations

import sys
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

Function = TypeVar("Function", bound="Callable[..., object]")
CompiledAs = Literal["kernel", "part", "inlined", "borrowing", "intrinsic"]


def kernel(function: Function) -> Function:
    """Compile `function` on its first call; to the type checker it keeps the type it was written with."""
    return _made(function, "kernel")


def part(function: Function) -> Function:
    """Compile a part of kernels: other kernels call it, Python never does.

    It has no entry points for Python and C, and one version whatever constants it is called with (numba would
    make one for each): together that takes a third of the time to compile. A call from Python would fail.
    """
    return _made(function, "part")


def inlined(function: Function) -> Function:
    """A `part` that is copied into its callers: for the few lines that nearly every row runs through."""
    return _made(function, "inlined")


def borrowing(function: Function) -> Function:
    """An `inlined` part that only borrows arrays: it makes none, and returns none. Numba refuses to compile it else.

    Numba counts who refers to an array: at each call that it is passed to, and for each name that it is given, and it
    does so with a locked instruction. In a loop over rows that calls parts with a dozen arrays, this takes longer than
    the work. Whoever called a kernel holds on to its arrays anyway, so a borrowing part counts nothing. It may call
    parts that do: a rare branch that needs an array of its own is a `part`.
    """
    return _made(function, "borrowing")


class Later:
    """Stands for a compiled function until the first of them is called."""

    def __init__(self, function: Callable[..., object], form: CompiledAs) -> None:
        update_wrapper(self, function)
        self.py_func, self.form = function, form
        self._compiled: Any = None

    def __call__(self, *arguments: object) -> object:
        load()
        return self.compiled()(*arguments)

    def compiled(self) -> Any:
        """What it stands for."""
        if self._compiled is None:
            from hullcast.network.compiling import compiled  # here, and nowhere else: it imports numba

            self._compiled = compiled(self.py_func, self.form)
        return self._compiled


_loaded = False


def load() -> None:
    """Import numba, and make all functions decorated so far ready to be compiled, or loaded from disk, when called.

    May be called in threads, so that an event loop does not wait for it: the first one loads, the others wait.
    """
    global _loaded  # noqa: PLW0603  one per process, as numba itself
    if _loaded:
        return
    from hullcast.network.compiling import global_compiler_lock, prepare

    with global_compiler_lock:  # a user's thread may be compiling functions of its own, too
        if is_loaded():
            return
        prepare()
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            settle(names, list(names))
        _loaded = True


def settle(names: dict[str, Any], which: Iterable[str]) -> None:
    """Put compiled functions in the places of those that stand for them."""
    for name in which:
        value = names.get(name)
        if isinstance(value, Later):
            names[name] = value.compiled()


def is_loaded() -> bool:
    """Whether numba is there already."""
    return _loaded


def plain(function: Function) -> Function | None:
    """The Python function behind a kernel while numba is not loaded, else None: for work too small to load it for."""
    return cast("Function", function.py_func) if isinstance(function, Later) and not _loaded else None


def _made(function: Function, form: CompiledAs) -> Function:
    later = Later(function, form)
    return cast("Function", later.compiled() if _loaded else later)


def _prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    from hullcast.network.compiling import prefetching

    return prefetching(array, index)


#: prefetch(array, index): ask for the cache line of array[index] without waiting for it. For kernels that know
#: some rows ahead where they will go: waiting for memory is most of what a random update costs.
prefetch: Callable[[npt.NDArray[Any], int], None] = cast("Any", Later(_prefetch, "intrinsic"))
