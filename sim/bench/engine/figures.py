"""Figures 5.6 and 5.7 and the throughput charts as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hullcast.sim.bench.engine.tables import (
    THESIS_GROWTH,
    THESIS_UNICAST,
    RowsSection,
    SubscriptionsSection,
    UpdateCost,
)
from hullcast.sim.bench.engine.throughput import ThroughputSection
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, ORANGE, pyplot, save
from hullcast.sim.output.text import short

SIZE = (8.0, 5.0)
_UNICAST_BAND: dict[str, Any] = {
    "color": ORANGE,
    "alpha": 0.15,
    "lw": 0,
    "label": "Xie (2007): S-UN {} to {} x S-CN".format(*THESIS_UNICAST),
}


def draw_rows(section: RowsSection, path: Path) -> Path:
    """Figure 5.6."""
    lines = section.lines
    figure, axes = pyplot().subplots(figsize=SIZE, dpi=DPI, layout="constrained")
    xs = [line.rows for line in lines]
    _costs(axes, xs, lines)
    kernel = [line.kernel_us for line in lines]
    ceiling = [line.ceiling_us for line in lines]
    if None not in kernel and None not in ceiling:
        axes.plot(xs, kernel, "s-", color=BLUE, label="S-CN, kernel alone")
        axes.plot(xs, ceiling, ":", color=GREY, label="static min-tree, searches only")
    _thesis(axes, lines, [n for n in xs if n <= 100_000])
    axes.set_xscale("log")
    axes.set_xlabel("rows")
    axes.set_title(f"Figure 5.6 of Xie (2007): time per update by table size, {lines[0].subscriptions:,} subscriptions")
    return _finish(figure, axes, xs, path)


def draw_subscriptions(section: SubscriptionsSection, path: Path) -> Path:
    """Figure 5.7."""
    lines = section.lines
    figure, axes = pyplot().subplots(figsize=SIZE, dpi=DPI, layout="constrained")
    xs = [line.subscriptions for line in lines]
    _costs(axes, xs, lines)
    points = [point for point in section.curve if xs[0] <= point.subscriptions <= xs[-1]]
    if points:
        alone = [1e6 / point.per_subscriber for point in points]
        label = "every predicate evaluated by itself (NumPy)"
        axes.plot([point.subscriptions for point in points], alone, "^:", color=GREY, label=label)
    low, high = THESIS_UNICAST
    base = median(line.engine_us for line in lines)
    axes.axhspan(low * base, high * base, **_UNICAST_BAND)
    axes.axhline(base, ls="--", color=GREEN, lw=1, alpha=0.8, label="Xie (2007): S-CN does not grow (here: our median)")
    axes.set_xscale("log")
    axes.set_xlabel("subscriptions (log: linear growth is a straight line)")
    axes.set_title(f"Figure 5.7 of Xie (2007): time per update by number of subscriptions, {lines[0].rows:,} rows")
    return _finish(figure, axes, xs, path)


def _costs(axes: Any, xs: Sequence[int], lines: Sequence[UpdateCost]) -> None:
    unicast, engine = [line.unicast_us for line in lines], [line.engine_us for line in lines]
    axes.plot(xs, unicast, "o-", color=ORANGE, label="S-UN (each subscription notified by itself)")
    axes.plot(xs, engine, "o-", color=GREEN, label="S-CN, Engine.upsert")
    for x, line in ((xs[0], lines[0]), (xs[-1], lines[-1])):
        told = f"{line.engine_us:.2f} us" if line is lines[0] else f"{line.growth.median:.2f}x of {short(xs[0])}"
        _note(axes, f"{line.unicast_ratio.median:.0f}x", (x, line.unicast_us), (0, 8), color=ORANGE)
        _note(axes, told, (x, line.engine_us), (0, 7), color=GREEN)


def _note(axes: Any, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    axes.annotate(text, at, textcoords="offset points", xytext=offset, **{"ha": "center", **style})


def _thesis(axes: Any, lines: Sequence[UpdateCost], xs: Sequence[int]) -> None:
    """Xie (2007) gives shapes, not times: that growth and that ratio, anchored at our first S-CN time."""
    if len(xs) < 2:
        return
    base = lines[0].engine_us
    ends = (xs[0], xs[-1])
    axes.plot(ends, (base, THESIS_GROWTH * base), "--", color=GREEN, lw=1, alpha=0.8, label="Xie (2007): S-CN +20 %")
    lows, highs = ((share * base, share * THESIS_GROWTH * base) for share in THESIS_UNICAST)
    axes.fill_between(ends, lows, highs, **_UNICAST_BAND)


def _finish(figure: Any, axes: Any, xs: Sequence[int], path: Path) -> Path:
    axes.set_yscale("log")
    axes.set_ylabel("microseconds per update (log)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(xs, [short(x) for x in xs], fontsize=9)
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.margins(x=0.07, y=0.12)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, path)


def draw_throughput(section: ThroughputSection, path: Path) -> Path:
    """Rates by batch and by type."""
    rates = (*section.by_batch, *section.by_type)
    panels = (
        Bars("updates a second", [rate.rate for rate in rates], GREEN, log=True),
        Bars("messages an update", [rate.messages for rate in rates]),
    )
    title = f"Engine.upsert with columns, {section.rows:,} rows, channel open, no local subscribers"
    return draw_bars(path, title, [rate.name for rate in rates], panels)
