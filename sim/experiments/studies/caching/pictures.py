"""What `draw_panels` does not draw: bars in groups, and surfaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.sim.experiments.studies.caching.means import Interval
from hullcast.sim.output.charts import DPI, GREY, INK, pyplot, save
from hullcast.sim.output.text import short


def draw_bars(
    groups: Sequence[str], bars: Mapping[str, Mapping[str, Interval]], colours: Mapping[str, str], path: Path, *,
    title: str, y_label: str,
) -> Path:  # fmt: skip
    """A group of bars for each name, a bar for each series that has it, and its 95 % interval."""
    figure, axes = pyplot().subplots(figsize=(8.2, 3.9), dpi=DPI, layout="constrained")
    width = 0.84 / len(bars)
    for place, (label, values) in enumerate(bars.items()):
        at = [groups.index(group) + (place - (len(bars) - 1) / 2) * width for group in values]
        low, mean, high = np.array(list(values.values())).T
        again = colours[label] in [colours[before] for before in list(bars)[:place]]
        axes.bar(at, mean, width * 0.92, yerr=(mean - low, high - mean), color=colours[label], label=label,
                 hatch="//" if again else "", edgecolor="white", lw=0.4,
                 error_kw={"ecolor": GREY, "elinewidth": 1.0})  # fmt: skip
    axes.set_xticks(range(len(groups)), groups)
    axes.yaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.22, lw=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside right center", frameon=False)
    figure.suptitle(title, fontsize=12, color=INK)
    figure.supxlabel("Bars: means of all draws; whiskers: 95 % intervals", fontsize=7.5, color=GREY)
    return save(figure, path)


def draw_surfaces(
    surfaces: Mapping[str, Floats], x: Floats, y: Floats, path: Path, *, title: str, x_label: str, y_label: str
) -> Path:
    """Surfaces beside each other, on one scale."""
    figure = pyplot().figure(figsize=(4.2 * len(surfaces), 4.2), dpi=DPI, layout="constrained")
    top = max(float(each.max()) for each in surfaces.values())
    along, across = np.meshgrid(x, y)
    for place, (name, heights) in enumerate(surfaces.items()):
        axes = figure.add_subplot(1, len(surfaces), place + 1, projection="3d")
        axes.plot_surface(along, across, heights, cmap="viridis", vmin=0.0, vmax=top, rcount=40, ccount=40)
        axes.set(zlim=(0.0, top), xlabel=x_label, ylabel=y_label)
        axes.set_title(name, fontsize=10, color=INK)
        axes.tick_params(labelsize=7.5)
        axes.set_box_aspect(None, zoom=0.86)
    figure.suptitle(title, fontsize=12, color=INK)
    return save(figure, path)
