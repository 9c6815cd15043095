"""The budget of a frame in the terminal and as a picture: tables by size, stacked bars by process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from hullcast.sim.bench.hop.measure import HopReport, LiveLoad, StageLine
from hullcast.sim.bench.hop.stages import PROCESSES
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, INK, ORANGE, PINK, pyplot, save
from hullcast.sim.output.text import number, plain_table

COLOURS = {
    "decode": BLUE, "session": "#56B4E9", "routing": GREEN, "work": INK, "encode": PINK, "rest": GREY,
    "log": "#F0E442", "send": ORANGE, "wake-up": "#E69F00",
}  # fmt: skip


def show_hop(report: HopReport, console: Console) -> None:
    """Print everything that was measured."""
    here, floor = report.machine, report.floor
    console.print(
        f"\n{here['cpu']}, {here['cores']} cores, load {here['load'][0]}; Python {here['python']}; faster half of "
        f"{report.settings.frames} frames",
        style="dim",
    )
    table = plain_table("what this machine takes, us of CPU", "", *(_rows(rows) for rows in floor.carried))
    carried = floor.carried.values()
    table.add_row("bytes of a message", *(f"{one.bytes:,}" for one in carried))
    table.add_row("bare ZeroMQ, send", *(number(one.bare_send_us) for one in carried))
    table.add_row("bare ZeroMQ, receive", *(number(one.bare_receive_us) for one in carried))
    table.add_row("our sockets, send", *(number(one.send_us) for one in carried))
    table.add_row("our sockets, receive", *(number(one.receive_us) for one in carried))
    console.print()
    console.print(table)
    console.print(
        f"To wake a thread: {number(floor.wake_us)} us. A write and fdatasync: {number(floor.sync_us)} us of time, "
        f"{number(floor.sync_cpu_us)} of CPU; a group through the log's thread and back: {number(floor.log_us)} and "
        f"{number(floor.log_cpu_us)}.",
        style="dim",
    )
    for counted in report.counted:
        _show_stages(report, counted.rows, console)
        console.print(
            f"Garbage collections per 10,000 frames, all processes together: {counted.collections[0]} young, "
            f"{counted.collections[1]} middle, {counted.collections[2]} full.",
            style="dim",
        )
    console.print(
        "work: rows to columns (publisher), engine (server), answers (subscriber). rest: calls, checks and the turns "
        "of the loop. floor: what bare ZeroMQ or the disk takes. The budget is in hops of bare ZeroMQ. blocks: of "
        "memory, allocated in a process's part and still there at its end.",
        style="dim",
    )
    for load in report.live:
        _show_live(load, console)
    console.print(
        "Per frame published. loop: the thread with the event loop; the other threads are ZeroMQ's and the log's. "
        "wake-ups: voluntary context switches of all threads.",
        style="dim",
    )


def _show_stages(report: HopReport, rows: int, console: Console) -> None:
    title = f"us of CPU a frame, {_rows(rows)} each"
    table = plain_table(title, "process and stage", "us", "share", "floor", "budget", "", "blocks")
    for process in PROCESSES:
        lines = lines_of(report, process, rows)
        blocks = next(one.blocks for one in report.stages if (one.process, one.rows) == (process, rows))
        whole, budget = sum(line.us for line in lines), sum(line.budget_us for line in lines)
        verdict = _verdict(whole <= budget)
        table.add_row(f"[bold]{process}[/]", number(whole), "", "", number(budget), verdict, f"{blocks:.0f}")
        for line in lines:
            figures = (number(line.us), f"{line.share:.0%}", number(line.floor_us), number(line.budget_us))
            table.add_row(f"  {line.stage}", *figures, _verdict(line.kept), "", end_section=line is lines[-1])
    console.print()
    console.print(table)


def _verdict(kept: bool) -> str:
    return "[green]ok[/]" if kept else "[red]OVER[/]"


def lines_of(report: HopReport, process: str, rows: int) -> list[StageLine]:
    """The stages of a process, the largest first."""
    lines = [line for line in report.lines if (line.process, line.rows) == (process, rows)]
    return sorted(lines, key=lambda line: -line.us)


def _show_live(load: LiveLoad, console: Console) -> None:
    title = (
        f"a cluster at {load.frames_s:,.0f} frames/s of {_rows(load.rows)}, receipt p50 {load.receipt_p50_ms:.1f} ms"
    )
    table = plain_table(title, "process", "CPU us", "user", "system", "loop", "wake-ups")
    for name, used in load.used.items():
        table.add_row(name, *map(number, (used.us, used.user_us, used.system_us, used.loop_us, used.wakes)))
    table.add_row("all", number(sum(used.us for used in load.used.values())), "", "", "", "")
    console.print()
    console.print(table)


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def draw_hop(report: HopReport, beside: Path) -> Path:
    """Draw it, with the name of the JSON file beside it."""
    sizes = [counted.rows for counted in report.counted]
    figure, panels = pyplot().subplots(1, len(sizes) + 1, figsize=(13, 4.8), dpi=DPI, layout="constrained")
    for axes, rows in zip(panels, sizes, strict=False):
        _bars(axes, report, rows)
    _live_bars(panels[-1], report.live)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    panels[0].set_ylabel("microseconds of CPU a frame")
    figure.suptitle("What a frame costs each process (line: its budget)")
    return save(figure, beside.with_suffix(".png"))


def _bars(axes: Any, report: HopReport, rows: int) -> None:
    tops: list[tuple[int, float, float]] = []
    for place, process in enumerate(PROCESSES):
        lines = {line.stage: line for line in lines_of(report, process, rows)}
        bottom = 0.0
        for stage, colour in COLOURS.items():
            height = lines[stage].us if stage in lines else 0.0
            axes.bar(place, height, bottom=bottom, color=colour, width=0.65, label=stage if place == 0 else None)
            bottom += height
        budget = sum(line.budget_us for line in lines.values())
        axes.hlines(budget, place - 0.42, place + 0.42, color="black", lw=1.4)
        tops.append((place, bottom, budget))
    room = 0.06 * max(max(top, budget) for _, top, budget in tops)
    for place, top, budget in tops:  # above the line of the budget, if that would strike the number through
        axes.text(
            place, budget if top <= budget < top + room else top, f"{top:,.0f}", ha="center", va="bottom", fontsize=8.5
        )
    axes.set_xticks(range(len(PROCESSES)), [process.replace(", ", "\n") for process in PROCESSES])
    _finish(axes, f"stages, {_rows(rows)} a frame")


def _live_bars(axes: Any, loads: Sequence[LiveLoad]) -> None:
    load = loads[0]
    for place, used in enumerate(load.used.values()):
        axes.bar(place, used.user_us, color=BLUE, width=0.65, label="user" if place == 0 else None)
        label = "system" if place == 0 else None
        axes.bar(place, used.system_us, bottom=used.user_us, color=ORANGE, width=0.65, label=label)
        axes.text(place, used.us, f"{used.us:,.0f}\n{used.wakes:.1f}", ha="center", va="bottom", fontsize=7.5)
    axes.set_xticks(range(len(load.used)), list(load.used), rotation=60, fontsize=8.5)
    _finish(axes, f"real processes, {load.frames_s:,.0f} frames/s of {_rows(load.rows)}\n(below the sum: wake-ups)")
    axes.legend(frameon=False)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.margins(y=0.14)
    axes.grid(alpha=0.25, axis="y")
    axes.set_axisbelow(True)
