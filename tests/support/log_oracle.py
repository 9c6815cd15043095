"""Stream queries evaluated over a log as they are defined: slow, and obvious."""

from __future__ import annotations

from math import inf, isnan
from typing import Any, NamedTuple

from hullcast.broker.streams.plan import StreamInput, StreamQuery, WantedRanges

Cells = tuple[float, ...]


class Logged(NamedTuple):
    """One update: a tuple of a stream (with its time, if it has one), a row of a table, a deletion (only the key of
    `cells` counts), or the word that a stream has reached a time."""

    seq: int
    kind: str  # "tuple", "row", "gone" or "reached"
    name: str
    cells: Cells = ()
    time: float = 0.0


class Result(NamedTuple):
    """What came out, and the moment of the tuple that made it."""

    time: float
    at: int
    cells: Cells


def evaluate(query: StreamQuery, log: list[Logged]) -> list[Result]:
    """All results of a query over a log, in order."""
    if query.table is not None:
        return with_table(query, log)
    if query.right is None:
        tuples = [(time, seq, cells) for time, seq, cells, _ in stream_of(query.left, query.timed, log)]
        return [
            Result(time, seq, tuple(cells[column] for _, column in query.out))
            for time, seq, cells in tuples
            if lies_in(query.left.ranges, cells)
        ]
    return with_windows(query, log)


def with_windows(query: StreamQuery, log: list[Logged]) -> list[Result]:
    streams = [stream_of(stream, query.timed, log) for stream in query.streams]
    end = log[-1].seq if log else 0
    reached = [(reached_by(stream, query.timed, log), end) for stream in query.streams]
    merged = sorted(
        (time, seq, side, ordinal, cells) for side, tuples in enumerate(streams) for time, seq, cells, ordinal in tuples
    )
    consumed: tuple[list[Any], list[Any]] = ([], [])
    results = []
    for time, seq, side, _, cells in merged:
        if (time, seq) > reached[1 - side]:
            break
        other = query.streams[1 - side]
        assert other.window is not None
        window = consumed[1 - side]
        if other.window.rows != inf:
            window = window[max(0, len(window) - int(other.window.rows)) :]
        window = [one for one in window if one[0] >= time - other.window.range]
        for _, partner in window:
            left, right = (partner, cells) if side else (cells, partner)
            if not lies_in(query.streams[0].ranges, left) or not lies_in(query.streams[1].ranges, right):
                continue
            if all(left[a] == right[b] for a, b in query.equal):  # NULL, a NaN, equals nothing
                both = (left, right)
                results.append(Result(time, seq, tuple(both[which][column] for which, column in query.out)))
        consumed[side].append((time, cells))
    return results


def with_table(query: StreamQuery, log: list[Logged]) -> list[Result]:
    assert query.table is not None
    rows: dict[float, Cells] = {}
    results = []
    time = -inf
    for one in log:
        if one.name == query.table.table:
            if one.kind == "row":
                rows[one.cells[query.table.key]] = one.cells
            else:
                rows.pop(one.cells[query.table.key], None)
        elif one.name == query.left.stream:
            time = max(time, one.time)
            if one.kind != "tuple" or not lies_in(query.left.ranges, one.cells):
                continue
            for row in rows.values():
                if lies_in(query.table.ranges, row) and all(one.cells[a] == row[b] for a, b in query.equal):
                    both = (one.cells, row)
                    cells = tuple(both[which][column] for which, column in query.out)
                    results.append(Result(time if query.timed else 0.0, one.seq, cells))
    return results


def stream_of(stream: StreamInput, timed: bool, log: list[Logged]) -> list[tuple[float, int, Cells, int]]:
    """The tuples of a stream: effective time, sequence number, codes, and which of the stream it is."""
    found: list[tuple[float, int, Cells, int]] = []
    time = -inf
    for one in log:
        if one.name == stream.stream:
            time = max(time, one.time)
            if one.kind == "tuple":
                found.append((time if timed else 0.0, one.seq, one.cells, len(found)))
    return found


def reached_by(stream: StreamInput, timed: bool, log: list[Logged]) -> float:
    times = [one.time for one in log if one.name == stream.stream]
    return max(times, default=-inf) if timed else 0.0


def lies_in(ranges: WantedRanges | None, cells: Cells) -> bool:
    if ranges is None:
        return True
    return any(
        all(low <= cells[column] <= high for column, (low, high) in zip(ranges.columns, box, strict=True))
        for box in ranges.boxes
    )


def comparable(results: list[Result]) -> list[tuple[float, int, tuple[str, ...]]]:
    """Results with NULLs that are equal to each other; of one tuple's rows of a table no order is promised."""
    return [(r.time, r.at, tuple("NULL" if isnan(c) else repr(c + 0.0) for c in r.cells)) for r in results]
