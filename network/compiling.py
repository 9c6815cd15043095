"""What `network/compiled.py` needs of numba: compiled functions, their cache, and progress messages.

Where compiled code is kept, the first that can be used:

  HULLCAST_CACHE (or NUMBA_CACHE_DIR)    if it is set
  __pycache__ beside the source          as Python keeps its own
  XDG_CACHE_HOME/hullcast                or ~/.cache/hullcast
  TMPDIR/hullcast-UID                    or /tmp, /var/tmp
  nowhere                                every process compiles for itself; a warning says so

Code in `__pycache__` is read wherever new code goes: an image can be built with `hullcast warm`, and run without a
place to write to.

Numba pickles code, and a pickle can run any program as the user that reads it. So a folder other than `__pycache__` is
used only if it belongs to this user or to root, and nobody else may write to it.
"""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path
from pickle import UnpicklingError
from time import perf_counter
from typing import TYPE_CHECKING, Any

from llvmlite import ir  # type: ignore[import-untyped]  # llvmlite has no types
from numba import njit, types
from numba.core import cgutils
from numba.core import event as numba_event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock as global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.types import unliteral
from numba.extending import intrinsic

from hullcast.network.compiled import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.network.compiled import CompiledAs

log = logging.getLogger(__name__)

#: `_nrt`: references to arrays are counted. If not said, a function has it from its first caller. Private; checked with
#: numba 0.68.
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "_nrt": True}
_NO_ENTRY: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
PATIENCE_S = 1.0  # of compiling, before a line says why it takes so long
VARIABLES = ("HULLCAST_CACHE", "NUMBA_CACHE_DIR")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def prepare() -> None:
    """Let numba fill its tables of types and functions: half a second that the first kernel called would wait for.

    In one thread at a time (`load`): numba fills them from generators, which fail if another thread runs them.
    """
    for part_of_numba in (cpu_target.typing_context, cpu_target.target_context):
        part_of_numba.refresh()


def compiled(function: Any, form: CompiledAs) -> Any:
    """The compiled form of a function (the function itself when jit is disabled)."""
    settle(function.__globals__, function.__code__.co_names)  # numba must find callees, not what stands for them
    if form == "intrinsic":
        return intrinsic(function)
    if form != "kernel":
        return _part(function, form)
    dispatcher: Any = njit(**_OPTIONS)(function)
    if hasattr(dispatcher, "py_func"):  # it has not when jit is disabled
        dispatcher._cache = KernelCache(function)  # private; checked with numba 0.68
    return dispatcher


def _part(function: Any, form: CompiledAs) -> Any:
    options: Any = {**_OPTIONS, **_NO_ENTRY, "forceinline": form != "part", "_nrt": form != "borrowing"}
    compile_part: Any = njit
    dispatcher = compile_part(**options)(function)
    general = getattr(dispatcher, "get_call_template", None)  # None when jit is disabled
    if general is not None:
        setattr(dispatcher, "get_call_template", lambda args, kws: general(list(map(_general, args)), kws))  # noqa: B010
    return dispatcher


def _general(argument: Any) -> Any:
    """The type of an argument, without the constant it happens to be."""
    return unliteral(argument)  # type: ignore[no-untyped-call]  # numba has no types here


def prefetching(array: Any, index: Any) -> Any:
    """Types and code of `prefetch`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()] + [ir.IntType(32)] * 3)
        function = insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, keep_close, data_cache = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))
        builder.call(function, [address, to_read, keep_close, data_cache])
        return context.get_dummy_value()

    return types.void(array, index), generate


insert_function: Callable[[Any, Any, str], Any] = cgutils.get_or_insert_function


# --- the cache -----------------------------------------------------------------------------------------------------


class KernelCache(FunctionCache):
    """Numba's cache of one kernel, in our folder and with our stamp. What cannot be read or written is compiled again:
    a full or broken disk makes a start slow, and breaks nothing."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba has no types here
        folders = dict.fromkeys((self._cache_path, str(_beside(function))))  # the second may have come with an image
        stamp = self._cache_file._source_stamp
        self._files = [_CodeFile(folder, self._impl.filename_base, stamp) for folder in folders]  # type: ignore[no-untyped-call]
        self._cache_file = self._files[0]

    def holds_code(self) -> bool:
        """Whether there is code on disk, for some types of arguments."""
        return any(file._load_index() for file in self._files)

    def keeps_code(self) -> bool:
        """Whether what is compiled can be kept."""
        return _writable(Path(self._cache_path))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        key = self._index_key(sig, target_context.codegen())  # type: ignore[no-untyped-call]
        for file in self._files:
            found = file.load(key)
            if found is not None:
                return self._impl.rebuild(target_context, found)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            self.disable()  # type: ignore[no-untyped-call]
            _say_once(
                f"compiled code cannot be kept ({self._cache_path}: {error.strerror or error}), so each start compiles "
                "for a minute; set HULLCAST_CACHE to a folder that only this user can write to"
            )


class _CodeFile(IndexDataCacheFile):
    """Numba's index and data files; a broken one is an empty one."""

    def _load_index(self) -> dict[Any, Any]:
        try:
            found: dict[Any, Any] = super()._load_index()  # type: ignore[no-untyped-call]
        except _UNREADABLE:
            return {}
        return found

    def load(self, key: Any) -> Any:
        try:
            return super().load(key)  # type: ignore[no-untyped-call]
        except _UNREADABLE:
            return None


#: AttributeError and ImportError: code for arguments of a class (a NamedTuple of arrays) that has been renamed since.
_UNREADABLE = (OSError, EOFError, UnpicklingError, AttributeError, ImportError)


class _Locator(_CacheLocator):
    """Tells numba what we have decided."""

    def __init__(self, function: Any, folder: Path) -> None:
        self._function, self._folder = function, folder
        self._py_file = function.__code__.co_filename  # numba's warnings name it

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, _folder(_beside(py_func)))

    def ensure_cache_path(self) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_disambiguator(self) -> str:
        return str(self._function.__code__.co_firstlineno)

    def get_source_stamp(self) -> str:
        """A digest of all that the kernel is compiled from, not only of its own file.

        What it took from other files (kernels and parts it calls, constants it froze) may change while its own file
        does not, and the old machine code would run on, silently. Callees are found by name in the module's globals:
        import them by name (`from .search import report`), not through their module. Contents count, not dates: code
        that was compiled from a copy will do.
        """
        sources: set[str] = set()
        _collect(self._function, sources, set())
        return blake2b("\n".join(sorted(sources)).encode(), digest_size=16).hexdigest()


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  as numba has it


KernelCache._impl_class = _Impl


def _collect(function: Any, sources: set[str], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    sources.add(f"{function.__module__} {_digest(function.__code__.co_filename)}")
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if hasattr(value, "py_func"):
            _collect(value.py_func, sources, seen)
        elif isinstance(value, (bool, int, float, str, tuple)):
            sources.add(f"{name} {value!r}")


@cache
def _digest(file: str) -> str:
    return sha256(Path(file).read_bytes()).hexdigest()


# --- where it is ---------------------------------------------------------------------------------------------------


def _beside(function: Any) -> Path:
    return Path(function.__code__.co_filename).absolute().parent / "__pycache__"


def code_folder(source: Path) -> Path:
    """Where the compiled code of the sources in a folder is kept."""
    return _folder(source / "__pycache__")


@cache
def _folder(beside: Path) -> Path:
    """Where the compiled code of sources goes; if there is no place for it, that shows when it is to be saved."""
    source = beside.parent
    name = f"{source.name}-{sha256(os.fsencode(source)).hexdigest()[:16]}"
    refused = ""
    for variable in VARIABLES:
        if os.environ.get(variable):
            given = Path(os.environ[variable]).resolve()
            if (reason := _unusable(given)) is None:
                return given / name
            refused = refused or f"{variable}={given}: {reason}"
    found = beside
    if not _writable(beside):
        found = next((base / name for base in _bases() if _unusable(base) is None), beside)
    if refused:
        _say_once(f"compiled code is kept in {found if _writable(found) else 'no place'} ({refused})")
    return found


def _bases() -> Iterator[Path]:
    """The places to try where the package's own folder cannot be written to."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):  # without HOME and without an entry in /etc/passwd there is none
        yield Path(home) / "hullcast"
    for temporary in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp"):
        if temporary:
            yield Path(temporary).absolute() / f"hullcast-{os.geteuid()}"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _unusable(folder: Path) -> str | None:
    """Why compiled code may not be kept in a folder, made if need be; None if it may."""
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        status = folder.lstat()  # not of what a link leads to: whoever made the link could change it
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(status.st_mode):
        return "not a folder"
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to another user ({status.st_uid}), who could put programs there"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return "other users may write to it, and could put programs there (chmod 700)"
    return None if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written to"


# --- what is said --------------------------------------------------------------------------------------------------


# As text and not as fields: in a user's script no log is set up, and Python then shows the text alone.


_shown = False  # a bar shows that it takes a while, or it was said


def announce() -> None:
    """Say that compiling takes a while; once in a process, and not where a bar says it already."""
    if not _shown:
        do_not_announce()
        log.warning("compiling .. (once, about a minute)")


def do_not_announce() -> None:
    """Stay quiet: a bar shows that compiling takes a while."""
    global _shown  # noqa: PLW0603  (of one process, as the compiler is)
    _shown = True


_said: list[str] = []


def _say_once(trouble: str) -> None:
    """One line about the cache, whatever goes wrong how often."""
    if not _said:
        _said.append(trouble)
        log.warning("%s", trouble)


class _Waiting(numba_event.Listener):
    """Notices when compiling has taken long enough to be mentioned."""

    def __init__(self) -> None:
        self._depth, self._since, self._spent_s = 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._since = perf_counter()
        self._depth += 1
        self._look()

    def on_end(self, event: Any) -> None:
        self._look()
        self._depth -= 1
        if self._depth == 0:
            self._spent_s += perf_counter() - self._since

    def _look(self) -> None:
        if self._spent_s + perf_counter() - self._since >= PATIENCE_S:
            announce()


_register: Callable[[str, Any], None] = numba_event.register
_register("numba:compile", _Waiting())
