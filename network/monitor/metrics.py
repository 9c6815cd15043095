"""Numbers about a process, and how Prometheus wants them written (text format 0.0.4).

Those who count keep plain ints, a `Counters` or a `Histogram`, and make frozen `Metric`s of them when asked. Names
begin with `hullcast_`, units are in the name (`_seconds`, `_bytes`), what only grows ends in `_total`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from math import inf, isinf, isnan
from typing import TYPE_CHECKING, Literal

import numpy as np

from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Upper ends of the buckets of a latency, in seconds: 1-2-5 steps from 0.1 ms to 10 s.
LATENCIES_S = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number. `suffix` is for the parts of a histogram: `_bucket`, `_sum`, `_count`."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """Numbers of one name, told apart by their labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    samples: tuple[Sample, ...]


def counter(name: str, about: str, value: float, /, **labels: object) -> Metric:
    """A number that only grows; its name ends in `_total`."""
    return Metric(name, "counter", about, (Sample(value, _labels(labels)),))


def gauge(name: str, about: str, value: float, /, **labels: object) -> Metric:
    """A number that goes up and down."""
    return Metric(name, "gauge", about, (Sample(value, _labels(labels)),))


class Counters:
    """Counts of one name by one label: refusals by reason, frames by type.

    >>> refused = Counters("hullcast_refused_total", "Requests refused.", "why")
    >>> refused.add("slow"); refused["slow"]
    1
    """

    def __init__(self, name: str, about: str, label: str) -> None:
        self._name, self._about, self._label = name, about, label
        self._counts: Counter[str] = Counter()

    def __getitem__(self, which: str) -> int:
        return self._counts[which]

    def add(self, which: str, times: int = 1) -> None:
        """Count."""
        self._counts[which] += times

    def total(self) -> int:
        """All of them together."""
        return self._counts.total()

    def as_dict(self) -> dict[str, int]:
        """The counts by label."""
        return dict(self._counts)

    def metric(self) -> Metric:
        """A frozen copy."""
        samples = tuple(Sample(count, ((self._label, which),)) for which, count in sorted(self._counts.items()))
        return Metric(self._name, "counter", self._about, samples)


class Histogram:
    """How many values fell below each of a few fixed bounds; one `bisect` a value, or one NumPy call a batch."""

    def __init__(self, bounds: tuple[float, ...] = LATENCIES_S) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)) or isinf(bounds[-1]):
            raise InvariantBroken(f"bounds of a histogram rise and are finite: {bounds}")
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # not cumulative; the last one is beyond all bounds
        self._sum = 0.0

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Take one value in."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_many(self, values: NDArray[np.float64]) -> None:
        """Take many values in."""
        if len(values):
            buckets = np.searchsorted(self._bounds, values, side="left")
            for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
                self._counts[int(bucket)] += int(count)
            self._sum += float(values.sum())

    def quantile(self, share: float) -> float:
        """The bound below which that share of the values lies, to within a bucket; NaN before the first value."""
        wanted, below = share * self.count, 0
        if not self.count:
            return float("nan")
        for bound, count in zip((*self._bounds, inf), self._counts, strict=True):
            below += count
            if below >= wanted and below:
                return bound
        return inf

    def metric(self, name: str, about: str, /, **labels: object) -> Metric:
        """A frozen copy, cumulative as Prometheus wants it."""
        own, below = _labels(labels), 0
        samples = []
        for bound, count in zip((*self._bounds, inf), self._counts, strict=True):
            below += count
            samples.append(Sample(below, (*own, ("le", number(bound))), "_bucket"))
        samples += [Sample(self._sum, own, "_sum"), Sample(below, own, "_count")]
        return Metric(name, "histogram", about, tuple(samples))


def render(metrics: Iterable[Metric]) -> str:
    """The text format. Metrics of one name are put together, so that each part of a process may report its own."""
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        families.setdefault(metric.name, []).append(metric)
    return "".join(line for name, family in families.items() for line in _family(name, family))


def number(value: float) -> str:
    """A number as the format writes it: whole ones without a point."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _family(name: str, family: list[Metric]) -> Iterable[str]:
    kind, about = family[0].kind, family[0].about
    if not _NAME.fullmatch(name) or any(metric.kind != kind for metric in family):
        raise InvariantBroken(f"metric {name!r}: a bad name, or two kinds under one name")
    if (kind == "counter") != name.endswith("_total"):
        raise InvariantBroken(f"metric {name}: counters, and only they, end in _total")
    yield f"# HELP {name} {_escaped(about)}\n"
    yield f"# TYPE {name} {kind}\n"
    seen: set[tuple[str, Labels]] = set()
    for sample in (sample for metric in family for sample in metric.samples):
        identity = (sample.suffix, tuple(sorted(sample.labels)))
        if identity in seen or len(dict(sample.labels)) < len(sample.labels):
            raise InvariantBroken(f"metric {name}: {sample.labels} is there twice")  # Prometheus refuses all then
        seen.add(identity)
        yield f"{name}{sample.suffix}{_written(sample.labels)} {number(sample.value)}\n"


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    for label, _ in labels:
        if not _LABEL.fullmatch(label):
            raise InvariantBroken(f"{label!r} is no name of a label")
    pairs = (f'{label}="{_escaped(value).replace(chr(34), chr(92) + chr(34))}"' for label, value in labels)
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _labels(labels: Mapping[str, object]) -> Labels:
    return tuple((label, str(value)) for label, value in labels.items())
