"""Rows from a file or from standard input, in bounded batches: CSV, JSON lines, Parquet.

Memory holds a batch or two, however large the input is. What comes through a pipe is handed on as soon as nothing
more is there, so that `tail -f prices.csv | hullcast publish ..` is live.
"""

from __future__ import annotations

import csv
import json
import os
import select
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FileForm = Literal["csv", "jsonl", "parquet"]

READ_BYTES = 1 << 16
#: A batch ends at so many bytes of text even if it has few rows, so that it stays below what a server takes.
BATCH_BYTES = 4 << 20
LONGEST_LINE_BYTES = 16 << 20
_LOOK_S = 0.2  # how often a reader that waits looks whether it was closed


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Some rows of a source. `rows` are columns of text (CSV), dicts (JSON lines) or an Arrow RecordBatch (Parquet);
    `lines` says on which line of the file each begins, or which row of it it is, counted from 1."""

    source: str
    form: FileForm
    rows: Any
    lines: Sequence[int]

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int, column: str = "") -> str:
        """Where a row is, in words."""
        word = "row" if self.form == "parquet" else "line"
        return f"{self.source} {word} {self.lines[row]}" + (f", column {column}" if column else "")


class Source:
    """An open file, or standard input for `-`, as lines. Closing it ends a read that waits, from any thread."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else path
        try:
            self._fd = os.dup(0) if path == "-" else os.open(path, os.O_RDONLY)
        except OSError as error:
            raise UsageError(f"cannot read {self.name}: {error.strerror}") from error
        self._rest = b""  # after the last whole line
        self._lines: list[bytes] = []  # whole lines, the next one last
        self._ended = False
        self._closed = False
        self.line = 0  # of the last line handed out
        self.taken_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._lines:
            if self._ended:
                raise StopIteration
            self._fill()
        line = self._lines.pop()
        self.line += 1
        self.taken_bytes += len(line)
        try:
            return line.decode("utf-8-sig" if self.line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.name} line {self.line}: byte {error.start + 1} is not UTF-8") from None

    def idle(self) -> bool:
        """Whether the next line has yet to come."""
        return not self._lines and not self._ended and not select.select((self._fd,), (), (), 0)[0]

    def close(self) -> None:
        """Read no more; a reader that waits finds the end of the file."""
        self._closed = True

    def release(self) -> None:
        """Close the file; called by the reader."""
        self._closed = True
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def seekable(self) -> bool:
        """Whether one can jump about in it: a file, not a pipe."""
        try:
            os.lseek(self._fd, 0, os.SEEK_CUR)
        except OSError:
            return False
        return True

    def duplicate(self) -> int:
        """Another descriptor of the same file."""
        return os.dup(self._fd)

    def copy_to(self, file: Any) -> None:
        """All that is left, as it is."""
        while piece := self._read():
            file.write(piece)

    def _read(self) -> bytes:
        while not select.select((self._fd,), (), (), _LOOK_S)[0]:
            if self._closed:
                return b""
        if self._closed:
            return b""
        try:
            return os.read(self._fd, READ_BYTES)
        except OSError as error:
            raise UsageError(f"cannot read {self.name}: {error.strerror}") from error

    def _fill(self) -> None:
        """Whole lines, if there are any, until the next read."""
        pieces = [self._rest]
        size = len(self._rest)
        while b"\n" not in pieces[-1]:
            piece = self._read()
            if not piece:
                self._ended = True
                break
            pieces.append(piece)
            size += len(piece)
            if size > LONGEST_LINE_BYTES:
                raise UsageError(f"{self.name} line {self.line + 1}: longer than {LONGEST_LINE_BYTES >> 20} MB")
        lines = b"".join(pieces).split(b"\n")
        self._rest = b"" if self._ended else lines.pop()
        self._lines = [line + b"\n" for line in reversed(lines) if line or not self._ended]
        if self._ended and self._lines:
            self._lines[0] = self._lines[0][:-1]


def read_rows(source: Source, form: FileForm, size: int, delimiter: str = ",") -> Iterator[ReadRows]:
    """The rows in batches of at most `size`; UsageError names the line that cannot be read."""
    match form:
        case "csv":
            return _csv(source, size, delimiter)
        case "jsonl":
            return _json_lines(source, size)
        case "parquet":
            return _parquet(source, size)


def form_of(path: str) -> FileForm:
    """What a file's name says it is."""
    for ending, form in _ENDINGS.items():
        if path.lower().endswith(ending):
            return form
    raise UsageError(
        f"{path} is not a trace: give a file ({', '.join(_ENDINGS)}), a folder made by `hullcast sim trace`, or one of "
        "market, synthetic and points"
    )


_ENDINGS: dict[str, FileForm] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


def _csv(source: Source, size: int, delimiter: str) -> Iterator[ReadRows]:
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    names: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    begun = source.taken_bytes
    while True:
        line = source.line + 1  # where a record begins: quoted cells may span several lines
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UsageError(f"{source.name} line {line}: not CSV: {error}") from None
        if cells is not None and cells:  # an empty line is none
            if names is None:
                names = _header(source.name, line, cells)
                begun = source.taken_bytes
                continue
            if len(cells) != len(names):
                raise UsageError(f"{source.name} line {line}: {len(cells)} cells where the header has {len(names)}")
            rows.append(cells)
            lines.append(line)
        full = len(rows) >= size or source.taken_bytes - begun >= BATCH_BYTES
        if rows and (cells is None or full or source.idle()):
            assert names is not None
            yield ReadRows(source.name, "csv", dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), lines)
            rows, lines, begun = [], [], source.taken_bytes
        if cells is None:
            return


def _header(source: str, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if not all(names):
        raise UsageError(f"{source} line {line}: column {names.index('') + 1} of the header has no name")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{source} line {line}: the header has {name} twice")
    return names


def _json_lines(source: Source, size: int) -> Iterator[ReadRows]:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    begun = source.taken_bytes
    for text in source:
        if text.strip():
            rows.append(_object(source, text))
            lines.append(source.line)
        if rows and (len(rows) >= size or source.taken_bytes - begun >= BATCH_BYTES or source.idle()):
            yield ReadRows(source.name, "jsonl", rows, lines)
            rows, lines, begun = [], [], source.taken_bytes
    if rows:
        yield ReadRows(source.name, "jsonl", rows, lines)


def _object(source: Source, text: str) -> dict[str, Any]:
    where = f"{source.name} line {source.line}"
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {str(error) or 'too deep'}") from None
    if not isinstance(found, dict):
        raise UsageError(f'{where}: each line is an object, as {{"SYMBOL": "A"}}; this one is not')
    if not found:
        raise UsageError(f"{where}: an object without columns; give at least the key")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number; use null for NULL")


def _parquet(source: Source, size: int) -> Iterator[ReadRows]:
    try:
        import pyarrow  # type: ignore[import-untyped]  # ships no types
        from pyarrow import parquet
    except ImportError:
        raise UsageError("Parquet files need pyarrow: pip install hullcast[arrow]") from None
    with _seekable(source) as file:
        done = 0
        try:
            with closing(parquet.ParquetFile(file)) as table:
                for rows in table.iter_batches(batch_size=size):
                    if len(rows):
                        yield ReadRows(source.name, "parquet", rows, range(done + 1, done + len(rows) + 1))
                    done += len(rows)
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(f"{source.name}: not a Parquet file that can be read: {error}") from None


@contextmanager
def _seekable(source: Source) -> Iterator[Any]:
    """The file itself; of a pipe, which cannot be read from its end, a copy on disk."""
    with tempfile.TemporaryFile() as copy:
        if source.seekable:
            with open(source.duplicate(), "rb") as file:
                yield file
        else:
            source.copy_to(copy)
            copy.seek(0)
            yield copy
