"""Rows from CSV, JSON lines and Parquet: bounded batches, exact places of errors, types of the table."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.clients.cli.feeds import rows_in
from hullcast.clients.cli.feeds.rows_in import FileForm, ReadRows, Source, form_of, read_rows
from hullcast.clients.cli.feeds.rows_typed import TableShape, create_statement, find_table, typed
from hullcast.network.wire.errors import UnknownTable, UsageError

TABLE = TableShape("T", "ID", {"ID": "INTEGER", "NAME": "TEXT", "X": "REAL", "AT": "TIMESTAMP"})


def read(path: Path, content: str | bytes, form: FileForm = "csv", size: int = 1000) -> list[ReadRows]:
    file = path / "rows"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    source = Source(str(file))
    try:
        return list(read_rows(source, form, size))
    finally:
        source.release()


def refused(path: Path, content: str | bytes, form: FileForm = "csv") -> str:
    with pytest.raises(UsageError) as found:
        [typed(batch, TABLE) for batch in read(path, content, form)]
    return str(found.value).replace(str(path), "")


def test_csv_cells_become_what_the_columns_are(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, "id,Name,X,at\n7,Zoë ☃,-1.5e3,2024-01-02T03:04:05+00:00\n8,,,\n")
    assert typed(batch, TABLE) == {
        "ID": [7, 8],
        "NAME": ["Zoë ☃", None],
        "X": [-1500.0, None],
        "AT": [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), None],
    }


def test_what_is_not_finite_is_left_to_the_table_and_makes_no_column_of_numbers(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, "id,x\nnan,-inf\n")
    assert repr(typed(batch, TABLE)) == "{'ID': [nan], 'X': [-inf]}"
    assert create_statement("T", batch) == 'CREATE TABLE "T" ("id" TEXT PRIMARY KEY, "x" TEXT)'


def test_a_batch_has_no_more_rows_than_asked_for(tmp_path: Path) -> None:
    batches = read(tmp_path, "ID\n" + "".join(f"{n}\n" for n in range(25)), size=10)
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert [batch.lines[0] for batch in batches] == [2, 12, 22]


def test_a_batch_of_long_lines_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_in, "BATCH_BYTES", 1000)
    batches = read(tmp_path, "ID,NAME\n" + "".join(f"{n},{'x' * 300}\n" for n in range(8)))
    assert [len(batch) for batch in batches] == [4, 4]


def test_lines_are_counted_over_quoted_newlines_and_empty_lines(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, '\ufeffID,NAME\r\n1,"a\nb\nc"\r\n\r\n2,"say ""hi"""\r\n3,end')
    assert batch.rows == {"ID": ["1", "2", "3"], "NAME": ["a\nb\nc", 'say "hi"', "end"]}
    assert list(batch.lines) == [2, 6, 7]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ID,X\n1,2\n2,oops\n", "line 3, column X: 'oops' is not a number"),
        ("ID,X\n1,1_000\n", "line 2, column X: '1_000' is not a number"),
        ("ID\n1.5\n", "line 2, column ID: '1.5' is not an integer"),
        ("ID,AT\n1,yesterday\n", "line 2, column AT: 'yesterday' is not an ISO-8601 timestamp"),
        ("ID,X\n1\n", "line 2: 1 cells where the header has 2"),
        ("ID,X\n1,2,3\n", "line 2: 3 cells where the header has 2"),
        ("ID,Y\n1,2\n", "no column Y in T; columns: ID, NAME, X, AT"),
        ("X\n1\n", "the key column ID of T is missing"),
        ("ID,ID\n1,2\n", "line 1: the header has ID twice"),
        ("ID,\n1,2\n", "line 1: column 2 of the header has no name"),
        ('ID,NAME\n1,"never closed\n2,b\n', "line 2: not CSV: unexpected end of data"),
        ('ID,NAME\n1,"a"b\n', "line 2: not CSV"),
        (b"ID,NAME\n1,\xff\xfe\n", "line 2: byte 3 is not UTF-8"),
    ],
)
def test_bad_csv_is_refused_with_its_place(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"ID": 1}\n{"ID": 2\n', "line 2: not JSON"),
        ('{"ID": 1, "X": NaN}', "line 1: not JSON: NaN is not a JSON number; use null for NULL"),
        ("[1]", "line 1: each line is an object"),
        ("{}", "line 1: an object without columns"),
        ('{"ID": 1}\n\n{"X": 2}', "line 3: the key column ID is missing"),
        ('{"ID": 1, "Q": 2}', "line 1: no column Q in T"),
        ("[" * 100_000, "line 1: not JSON"),
    ],
)
def test_bad_json_is_refused_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    assert said in refused(tmp_path, content, "jsonl")


def test_json_rows_may_lack_columns(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, '{"id": 1, "X": null}\n{"ID": 2, "NAME": "ü"}\n', "jsonl")
    assert typed(batch, TABLE) == [{"id": 1, "X": None}, {"ID": 2, "NAME": "ü"}]
    assert typed(batch, TABLE, "X") == [{"id": 1}, {"ID": 2, "NAME": "ü"}]


def test_an_empty_file_has_no_batches(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "ID,X\n") == read(tmp_path, "\n\n", "jsonl") == []


def test_parquet_comes_in_batches_and_through_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"ID": range(25), "X": [n / 2 for n in range(25)]}), file)
    batches = read(tmp_path, file.read_bytes(), "parquet", 10)
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert batches[2].place(4, "X").endswith("row 25, column X")
    assert typed(batches[0], TABLE).column("ID").to_pylist() == list(range(10))
    with pipe(file.read_bytes()) as source:
        assert [len(batch) for batch in read_rows(source, "parquet", 10)] == [10, 10, 5]


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    assert "not a Parquet file" in refused(tmp_path, b"PAR1 and so on", "parquet")


class pipe:
    """A source that reads a pipe, filled by a thread and left open until `end`."""

    def __init__(self, content: bytes, *, end: bool = True) -> None:
        self._read, self._write = os.pipe()
        self._content, self._end = content, end

    def __enter__(self) -> Source:
        def fill() -> None:
            os.write(self._write, self._content)
            if self._end:
                os.close(self._write)

        self._thread = threading.Thread(target=fill)
        self._thread.start()
        self.source = Source(f"/dev/fd/{self._read}")
        return self.source

    def __exit__(self, *exception: object) -> None:
        self._thread.join()
        self.source.release()
        os.close(self._read)
        if not self._end:
            os.close(self._write)


def test_rows_of_a_pipe_are_handed_on_as_they_come() -> None:
    with pipe(b"ID,X\n1,2\n2,3\n3,un", end=False) as source:
        batch = next(read_rows(source, "csv", 1000))
        assert set(batch.rows["ID"]) <= {"1", "2"}


def test_closing_a_source_ends_a_read_that_waits() -> None:
    with pipe(b"ID\n", end=False) as source:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(read_rows(source, "csv", 10)))
        thread.start()
        source.close()
        thread.join(10)
        assert not thread.is_alive()
        assert found == []


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_in, "LONGEST_LINE_BYTES", 100_000)
    assert "line 2: longer than" in refused(tmp_path, "ID,NAME\n1," + "x" * 300_000)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*: No such file or directory"):
        Source(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"rows\.txt is not a trace: give a file"):
        form_of("rows.txt")
    assert form_of("A.CSV") == "csv"


@given(st.lists(st.tuples(st.integers(), st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n")))))
def test_json_lines_come_back_as_they_were_written(rows: list[tuple[int, str]]) -> None:
    text = "".join(json.dumps({"ID": n, "NAME": name}, ensure_ascii=False) + "\n" for n, name in rows)
    with pipe(text.encode()[:60_000].rsplit(b"\n", 1)[0] + b"\n") as source:
        found = [row for batch in read_rows(source, "jsonl", 3) for row in batch.rows]
    assert found == [{"ID": n, "NAME": name} for n, name in rows][: len(found)]


# --- tables for files --------------------------------------------------------------------------------------------


def test_a_table_is_guessed_from_what_its_rows_show(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, "id,price,zip,at,odd name,none\n1,2.5,007,2024-01-01,x,\n2,3,123,2024-01-02,y,\n")
    assert create_statement("QUOTE", batch) == (
        'CREATE TABLE "QUOTE" ("id" INTEGER PRIMARY KEY, "price" REAL, "zip" TEXT, "at" TIMESTAMP, '
        '"odd name" TEXT, "none" TEXT)'
    )
    assert '"zip" TEXT PRIMARY KEY' in create_statement("QUOTE", batch, "zip")
    with pytest.raises(UsageError, match="there is no column nix for the key"):
        create_statement("QUOTE", batch, "nix")


def test_json_types_are_guessed_from_values(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, '{"a": "k", "b": 1}\n{"a": "l", "b": 1.5, "c": 3}\n', "jsonl")
    assert create_statement("T", batch) == 'CREATE TABLE "T" ("a" TEXT PRIMARY KEY, "b" REAL, "c" INTEGER)'


def test_tables_are_found_whatever_their_case() -> None:
    tables = {"Stock": {"rows": 0, "key": "S", "columns": {"S": "TEXT"}}}
    assert find_table(tables, "STOCK").name == "Stock"
    with pytest.raises(UnknownTable, match="tables: Stock"):
        find_table(tables, "STOCKS")
