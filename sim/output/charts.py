"""Charts as PNG files: Matplotlib without a window, one set of colours, one way to write a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hullcast.network.wire.errors import UsageError

# Colours that stay apart for colour-blind readers (Okabe and Ito).
GREEN, ORANGE, BLUE, PINK = "#009E73", "#D55E00", "#0072B2", "#CC79A7"
GREY, INK = "#8a8a8a", "#333333"
DPI = 130


def pyplot() -> Any:
    """Matplotlib's pyplot; UsageError if it is missing, so that a command can ask before it measures."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("charts need matplotlib; install it with: pip install 'hullcast[bench]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plot

    plot.rcParams.update({"font.size": 9.5, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK})
    return plot


def save(figure: Any, path: Path) -> Path:
    """Write the picture and forget it; without Matplotlib's version, so that equal pictures are equal files."""
    try:
        figure.savefig(path, metadata={"Software": None})
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot().close(figure)
    return path
