"""The report of `bench peers`: a table per cell, where each peer wins, and the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median
from typing import Any

from rich.text import Text

from hullcast.sim.bench.frame.benchmark import Shown
from hullcast.sim.bench.peers.cells import Cell, PeerSettings
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import factor, number, plain_table

OURS = ("hullcast", "hullcast-nodes")
REFERENCE = "nats"
#: Who is better by less than this share has not won: two runs of the same peer easily differ by more (PEERS.md).
CLOSE = 0.1
MEDIANS = ("updates_s", "cpu_us", "p50_ms", "p99_ms", "client_bytes", "wire_bytes")
KEPT = {"synced": "synced to disk", "written": "written, but not synced", "memory": "in memory only"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLine:
    """One peer in one cell and round. Per update: CPU of all processes, and bytes."""

    peer: str
    cell: str
    round: int
    keeps: str = ""
    updates: int = 0
    updates_s: float = 0.0
    cpu_us: float = 0.0
    p50_ms: float | None = None
    p99_ms: float | None = None
    samples: int = 0
    kept_up: bool | None = None  # None: nothing was offered at a rate
    client_bytes: float | None = None
    wire_bytes: float | None = None
    peak_mb: float = 0.0
    wrong: int = 0
    failed: str = ""
    cpu_ratio: float | None = None  # of a summary, by the reference
    bytes_ratio: float | None = None  # bytes of clients, likewise

    @classmethod
    def failure(cls, peer: str, cell: Cell, round_number: int, why: str) -> PeerLine:
        """It could not be measured."""
        return cls(peer=peer, cell=cell.name, round=round_number, failed=why)


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """Everything measured."""

    settings: PeerSettings
    skipped: Mapping[str, str]
    lines: tuple[PeerLine, ...]

    def summaries(self, cell: str) -> dict[str, PeerLine]:
        """Of all peers that a cell was tried with."""
        here = [line for line in self.lines if line.cell == cell]
        reference = {line.round: line for line in here if line.peer == REFERENCE and not line.failed}
        peers = dict.fromkeys(line.peer for line in here)
        return {peer: _summary([line for line in here if line.peer == peer], reference) for peer in peers}


def _summary(lines: list[PeerLine], reference: Mapping[int, PeerLine]) -> PeerLine:
    """Medians of a peer's rounds in a cell; wrong answers of all of them; ratios to the reference round by round."""
    failed = next((line.failed for line in lines if line.failed), "")
    good = [line for line in lines if not line.failed]
    if not good:
        return PeerLine(peer=lines[0].peer, cell=lines[0].cell, round=lines[0].round, failed=failed)
    pairs = [(line, reference[line.round]) for line in good if line.round in reference]
    figures: dict[str, Any] = {name: _median(getattr(line, name) for line in good) for name in MEDIANS}
    return replace(
        good[0],
        **figures,
        cpu_ratio=_median(line.cpu_us / other.cpu_us for line, other in pairs if other.cpu_us),
        bytes_ratio=_median(
            line.client_bytes / other.client_bytes for line, other in pairs if line.client_bytes and other.client_bytes
        ),
        kept_up=None if good[0].kept_up is None else all(line.kept_up for line in good),
        peak_mb=max(line.peak_mb for line in good),
        wrong=sum(line.wrong for line in good),
        failed=failed,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def peer_goals(found: PeerFigures) -> tuple[Goal, ...]:
    """The aims that the cells measured can judge."""
    goals: list[Goal] = []

    def judge(
        aim: str, cell: str, peer: str, limit: float, value: Callable[[PeerLine], float | None], unit: str
    ) -> None:
        """`value` must be at most `limit`; a negative limit is a value to be reached."""
        summary = found.summaries(cell).get(peer)
        got = None if summary is None or summary.failed else value(summary)
        if got is None or summary is None:
            return
        least = limit < 0
        target = f"{'>=' if least else '<='} {number(abs(limit))}{unit}"
        share = got / -limit if least else limit / max(got, 1e-9)
        spoilt = f", {summary.wrong} wrong" if summary.wrong else ""
        spoilt += "*" if summary.kept_up is False else ""
        goals.append(Goal(aim, target, f"{number(got)}{unit}{spoilt}", 0.0 if spoilt else share, peer))

    nodes, direct = "hullcast-nodes", "hullcast"
    judge("single rows, sustained", "single", nodes, -10_000, lambda s: s.updates_s, "/s")
    for peer in OURS:
        judge("single rows, CPU beside NATS", "single", peer, 1.5, lambda s: s.cpu_ratio, "x")
        judge("2,000 single rows/s, CPU beside NATS", "single-2000", peer, 1.5, lambda s: s.cpu_ratio, "x")
        judge("2,000 single rows/s, p50", "single-2000", peer, 4, lambda s: s.p50_ms, " ms")
        judge("2,000 single rows/s, p99", "single-2000", peer, 20, lambda s: s.p99_ms, " ms")
        judge("1,000 rows a call, CPU", "thousand", peer, 4, lambda s: s.cpu_us, " us")
        judge("1,000 rows a call, sustained", "thousand", peer, -250_000, lambda s: s.updates_s, "/s")
        judge("20,000/s in calls of 100, p99", "hundred-20000", peer, 20, lambda s: s.p99_ms, " ms")
        judge("200 connections, CPU beside NATS", "connections-200", peer, 0.2, lambda s: s.cpu_ratio, "x")
        judge("200 connections, 50/s, CPU beside NATS", "connections-200-50", peer, 0.2, lambda s: s.cpu_ratio, "x")
        judge("200 connections, bytes beside NATS", "connections-200", peer, 0.05, lambda s: s.bytes_ratio, "x")
    judge("200 single rows/s, p50", "single-200", direct, 2, lambda s: s.p50_ms, " ms")
    return tuple(goals)


def peer_tables(found: PeerFigures) -> Iterator[Shown]:
    """A table for each cell, and what follows from all."""
    for cell in found.settings.cells:
        yield from _cell_tables(cell, found.summaries(cell.name))
    for name, why in found.skipped.items():
        yield Text(f"{name}: skipped: {why}")
    yield from map(Text, (*wins(found), *crossovers(found)))
    if found.settings.rounds == 1:
        yield Text("One round only: run it again before you rely on a difference.")
    yield (
        "*: did not keep up. CPU: of all processes (servers, publisher, clients), an update. x: beside NATS with "
        "client state in the same round. ms: from publishing (offered: from when it was due) to the event. bytes: "
        "received by clients, an update. GB: peak memory. What each peer does more or less: sim/bench/PEERS.md."
    )


def _cell_tables(cell: Cell, summaries: Mapping[str, PeerLine]) -> Iterator[Shown]:
    columns = ("updates\n/s", "CPU\nus", "\nx", "p50\nms", "p99\nms", "\nbytes", "\nGB", "\nwrong")
    table = plain_table(f"{cell.name}: {cell.about}", "", *columns)
    failures = {}
    for name, line in summaries.items():
        if line.failed:
            failures[name] = line.failed
        if not line.updates_s:
            table.add_row(name, "failed")
            continue
        ratio = "" if line.cpu_ratio is None else factor(line.cpu_ratio)
        table.add_row(
            f"{name}{'*' if line.kept_up is False else ''}",
            *(f"{line.updates_s:,.0f}", number(line.cpu_us), ratio, number(line.p50_ms), number(line.p99_ms)),
            *(number(line.client_bytes), f"{line.peak_mb / 1e3:.1f}", f"{line.wrong:,}"),
        )
    yield table
    kept: dict[str, list[str]] = {}
    for name, line in summaries.items():
        kept.setdefault(line.keeps, []).append(name)
    said = "; ".join(f"{KEPT[what]}: {', '.join(names)}" for what, names in kept.items() if what)
    if said:
        yield f"after a call, its rows are {said}"
    for name, why in failures.items():
        yield Text(f"{name} failed: {why}")


def wins(found: PeerFigures) -> list[str]:
    """Where each peer is clearly the best of those that kept up with right answers: least CPU, most updates/s, lowest
    p50; and where it is too close to say."""
    won: dict[str, dict[str, list[str]]] = {}
    close: dict[str, list[str]] = {}
    measures: tuple[tuple[str, Callable[[PeerLine], float | None], bool], ...] = (
        ("least CPU", lambda s: s.cpu_us or None, False),
        ("most updates/s", lambda s: s.updates_s or None, True),
        ("lowest p50", lambda s: s.p50_ms, False),
    )
    for cell in found.settings.cells:
        right = {
            name: line
            for name, line in found.summaries(cell.name).items()
            if not (line.wrong or line.failed or line.kept_up is False)
        }
        for what, value, largest in measures:
            if (what == "most updates/s") == (cell.rate is None) or what == "least CPU":
                scores = {name: score for name, line in right.items() if (score := value(line)) is not None}
                if len(scores) > 1:
                    best, second = sorted(scores, key=scores.__getitem__, reverse=largest)[:2]
                    low, high = sorted((scores[best], scores[second]))
                    where = close if high <= low * (1 + CLOSE) else won.setdefault(best, {})
                    where.setdefault(what, []).append(cell.name)
    said = [f"{name} wins: {_in_cells(by_measure)}" for name, by_measure in won.items()]
    return said + ([f"too close to say (the best two within {CLOSE:.0%}): {_in_cells(close)}"] if close else [])


def _in_cells(by_measure: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{what} in {', '.join(cells)}" for what, cells in by_measure.items())


def sweep(found: PeerFigures) -> dict[str, list[tuple[int, float]]]:
    """CPU per update by the number of connections, 50 subscriptions each, of every peer."""
    points: dict[str, list[tuple[int, float]]] = {}
    for cell in found.settings.cells:
        if cell.name.startswith("connections-") and cell.rate is None:
            for peer, line in found.summaries(cell.name).items():
                if line.cpu_us and not line.failed:
                    points.setdefault(peer, []).append((cell.connections, line.cpu_us))
    return {peer: sorted(of) for peer, of in points.items()}


def crossovers(found: PeerFigures) -> list[str]:
    """From how many connections on we use less CPU than the reference, in words."""
    points = sweep(found)
    said = []
    for ours in OURS:
        if len(points.get(ours, ())) > 1 and len(points.get(REFERENCE, ())) > 1:
            at = crossing(points[ours], points[REFERENCE])
            theirs = dict(points[REFERENCE])
            fewest = min((x for x, _ in points[ours] if x in theirs), default=0)
            if at is None:
                words = "with no number of connections measured"
            elif at <= fewest:
                words = f"with every number of connections measured, {fewest:,} and more"
            else:
                words = f"from about {at:,.{int(at < 10)}f} connections on"
            said.append(f"{ours} uses less CPU than {REFERENCE} {words} (50 subscriptions each, single rows).")
    return said


def crossing(ours: list[tuple[int, float]], other: list[tuple[int, float]]) -> float | None:
    """Where our curve falls below the other one and stays there; between two points along a line in log-log."""
    theirs = dict(other)
    gaps = [(log(x), log(y / theirs[x])) for x, y in ours if x in theirs]
    if not gaps or gaps[-1][1] >= 0:
        return None
    for (x, gap), (next_x, next_gap) in zip(gaps[-2::-1], gaps[:0:-1], strict=True):
        if gap >= 0:
            return exp(x + (next_x - x) * gap / (gap - next_gap))
    return float(next(x for x, _ in ours if x in theirs))  # below from the first on: where it crossed is not known
