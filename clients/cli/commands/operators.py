"""Joins over streams as `hullcast explain` shows them: operators, measured costs, progress charts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hullcast.network.wire.durations import time_shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: In place of the SQL of a view or stream.
UNSHOWN = "(its SELECT reads tables that this key may not read)"
#: Characters of a progress chart.
WIDTH, HEIGHT = 56, 9


def derived_in_words(name: str, known: Mapping[str, Any], *, is_hidden: bool) -> list[tuple[str, str]]:
    """How a derived stream is computed, as headings and sentences."""
    lines = [
        ("join" if is_hidden else f"stream {name}", known["source"] or UNSHOWN),
        ("computed", _state(known, is_hidden)),
    ]
    if known["memory_limit"] is not None:
        lines.append(("memory", memory_in_words(known)))
    if known.get("needed_bytes"):
        lines.append(("keeps", _kept(known)))
    lines.append(("policy", f"{known['policy']} decides which operator runs next; results are the same with any"))
    for path in known["paths"]:
        lines.append((f"from {path['stream']}", _operators(path["operators"])))
        if _is_measured(path):
            lines.append(("progress", drawn(path["chart"])))
            lines.append(("", _chains(path)))
    return lines


def _kept(known: Mapping[str, Any]) -> str:
    """What the windows and the table of a join take in memory."""
    needed = f"about {known['needed_bytes'] / 1e6:,.1f} MB for its windows and its table, as far as known before"
    return f"{known['kept_bytes'] / 1e6:,.1f} MB now; {needed}" if known["kept_bytes"] else needed


def _state(known: Mapping[str, Any], is_hidden: bool) -> str:
    if not known["made"]:
        return (
            "not now: nobody subscribes to it. The first subscription starts it in the streams process, and others "
            "that differ only in constants share it; it would be computed so:"
        )
    if known["failed"]:
        return f"stopped: {known['failed']}. It is begun again from then on; results between are missing"
    if not known["opened"]:
        return "not yet: the streams process is being started"
    parts = [f"by the streams process, {_many(known['results'], 'result')} since the server started"]
    parts.append(waiting_in_words(known))
    if known["gaps"]:
        parts.append(f"results are missing at {_many(known['gaps'], 'place')}, where subscribers got a Resync")
    if is_hidden:
        parts.append("for all subscriptions that differ only in constants")
    return "; ".join(parts)


def waiting_in_words(known: Mapping[str, Any]) -> str:
    """What waits in a join, and for what."""
    if not known["waiting"]:
        return "nothing waits"
    text = f"{_many(known['waiting'], 'tuple')} {'waits' if known['waiting'] == 1 else 'wait'}"
    if known["waits_for"] is not None:
        behind = time_shown(known["behind_s"])
        text += f" for {known['waits_for']}, whose time is {behind} behind: publish there, or send a heartbeat"
    return text


def memory_in_words(known: Mapping[str, Any]) -> str:
    """What a join with bounded memory keeps, and what it misses."""
    limit, memory = known["memory_limit"], known["memory"]
    if memory is None:
        return f"at most {_many(limit, 'tuple')} of both windows are kept; results that others would make are missed"
    text = f"keeps {memory['kept']:,} of at most {_many(limit, 'tuple')}; {memory['dropped']:,} were dropped for others"
    return f"{text}; about {missed_in_words(memory['missed_share'])} of the results are missed (an estimate)"


def missed_in_words(share: float) -> str:
    """A share of results, without saying none or all where that is not so."""
    if 0 < share < 0.001:
        return "under 0.1%"
    if 0.999 < share < 1:
        return "over 99.9%"
    return f"{share:.0%}" if 0.1 <= share <= 0.99 else f"{share:.1%}"


def _is_measured(path: Mapping[str, Any]) -> bool:
    return path["chart"] is not None and any(operator["runs"] for operator in path["operators"])


def _operators(operators: Sequence[Mapping[str, Any]]) -> str:
    """A line each: what it took, what came out, what that costs, what waits before it."""
    names = " -> ".join([*(operator["name"] for operator in operators), "results"])
    rows = []
    for operator in operators:
        if not operator.get("runs"):
            continue
        taken, made = operator["tuples"], operator["made"]
        parts = [
            f"{operator['name']}:",
            f"{taken:,} tuples in, {made:,} out ({made / taken:.3g} each)" if taken else "no tuples yet",
            f"{1e6 * operator['seconds_per_tuple']:.3g} us a tuple",
            f"{operator['selectivity']:.3g} of the bytes stay lately",
        ]
        if operator["waiting"]:
            parts.append(f"{operator['waiting']:,} tuples wait ({operator['waiting_bytes'] / 1000:,.1f} kB)")
        rows.append(f"\n  {parts[0]} {', '.join(parts[1:])}")
    return names + ("".join(rows) if rows else "" if "runs" not in operators[0] else "\n  nothing was measured yet")


def _chains(path: Mapping[str, Any]) -> str:
    """The segments of the envelope: which operators are run together, and what that frees."""
    chart, operators = path["chart"], path["operators"]
    said = []
    for begin, end in pairwise(chart["envelope"]):
        names = " + ".join(operator["name"] for operator in operators[begin:end])
        frees = chart["slopes"][begin]
        rate = f"frees {_bytes(frees)} a second of work" if frees > 0 else "frees nothing"
        said.append(f"{names} {rate}")
    return "by its lower envelope (·): " + "; ".join(said)


def _bytes(units: float) -> str:
    """What a byte of input becomes, per second: so many bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if units >= size:
            return f"{units / size:.3g} {unit}"
    return f"{units:.3g} bytes"


def drawn(chart: Mapping[str, Any], width: int = WIDTH, height: int = HEIGHT) -> str:
    """A progress chart: steps (o at each operator's end), and its lower envelope (dots)."""
    times: Sequence[float] = chart["times"]
    sizes: Sequence[float] = chart["sizes"]
    highest = max(sizes)
    cells = [[" "] * width for _ in range(height)]

    def column(time: float) -> int:
        return round(time / times[-1] * (width - 1))

    def row(size: float) -> int:
        return round((1 - size / highest) * (height - 1))

    for begin, end in pairwise(chart["envelope"]):
        first, last = column(times[begin]), column(times[end])
        for at in range(first, last + 1):
            share = (at - first) / (last - first) if last > first else 1.0
            cells[row(sizes[begin] + share * (sizes[end] - sizes[begin]))][at] = "·"
    for place, (begin, end) in enumerate(pairwise(times)):
        level, below = row(sizes[place]), row(sizes[place + 1])
        for at in range(column(begin), column(end)):
            cells[level][at] = "─"
        for between in range(min(level, below), max(level, below)):
            cells[between][column(end)] = "│"
        cells[level][column(end)] = "┐" if below > level else "┘" if below < level else "─"
    for time, size in zip(times, sizes, strict=True):
        cells[row(size)][column(time)] = "o"
    labels = {0: f"{highest:.3g}", height - 1: "0"}
    if highest > 1:
        labels.setdefault(row(1.0), "1")
    lines = [f"{labels.get(number, ''):>5} {''.join(line).rstrip()}" for number, line in enumerate(cells)]
    total = f"{1e9 * times[-1]:.3g} us"
    lines.append(f"      0{total:>{width - 1}}")
    return "\n".join(["what is left of a kB of tuples, after so much work:", *lines])


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
