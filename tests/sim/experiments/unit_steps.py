"""Streams unit by unit of time, slow and obvious: the definition that the simulator is held to, and all schedules.

Time, charts and arrivals are whole numbers, as in Babcock et al. (2003): in each unit one tuple makes one unit of
progress. A tuple is (path, arrival, progress).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from hullcast.broker.streams.chart import Chart

Progress = tuple[int, ...]
#: What a schedule prefers: less comes first. It is given the chart, the place of the operator, path and arrival.
Order = Callable[[Chart, int, int, int], tuple[float, ...]]


def place_of(chart: Chart, progress: int) -> int:
    """The operator that works on a tuple with this progress."""
    return max(place for place in range(chart.operators) if chart.times[place] <= progress)


def size_of(chart: Chart, progress: int) -> float:
    """What a tuple takes in memory: it keeps its size until an operator is done with it."""
    return 0.0 if progress >= chart.times[-1] else chart.sizes[place_of(chart, progress)]


def envelope_size(chart: Chart, progress: int) -> float:
    """And what it would take on the envelope."""
    for begin, end in pairwise(chart.envelope()):
        if chart.times[begin] <= progress <= chart.times[end]:
            part = (progress - chart.times[begin]) / (chart.times[end] - chart.times[begin])
            return chart.sizes[begin] + part * (chart.sizes[end] - chart.sizes[begin])
    raise AssertionError(f"{progress} is beyond the end of the chart")


def chain_order(chart: Chart, place: int, path: int, arrival: int) -> tuple[float, ...]:
    return -chart.slopes()[place], arrival, -place, path


def greedy_order(chart: Chart, place: int, path: int, arrival: int) -> tuple[float, ...]:
    return -chart.steps()[place], arrival, -place, path


def fifo_order(chart: Chart, place: int, path: int, arrival: int) -> tuple[float, ...]:
    return arrival, -place, path


def stepped(charts: Sequence[Chart], arrivals: Sequence[Sequence[int]], order: Order, until: int) -> list[list[float]]:
    """At each moment from 0 to `until`, the sizes of all tuples in the system. Tuples of one path and moment: the one
    that is farther on comes first."""
    tuples: list[list[int]] = []  # path, arrival, progress
    told = []
    for now in range(until + 1):
        tuples += [[path, now, 0] for path, times in enumerate(arrivals) for time in times if time == now]
        tuples = [each for each in tuples if size_of(charts[each[0]], each[2]) > 0]
        told.append([size_of(charts[path], progress) for path, _, progress in tuples])
        if tuples:
            first = min(
                tuples,
                key=lambda each: (
                    *order(charts[each[0]], place_of(charts[each[0]], each[2]), each[0], each[1]),
                    -each[2],
                ),
            )
            first[2] += 1
    return told


def least_of_all(
    charts: Sequence[Chart],
    arrivals: Sequence[Sequence[int]],
    until: int,
    size: Callable[[Chart, int], float],
) -> list[float]:
    """At each moment the least memory that any schedule could need then: all schedules are tried, idle ones too."""
    tuples = [(path, time) for path, times in enumerate(arrivals) for time in times]
    states: set[Progress] = {(0,) * len(tuples)}
    least = []
    for now in range(until + 1):
        here = [at for at, (_, time) in enumerate(tuples) if time <= now]
        least.append(min(sum(size(charts[tuples[at][0]], state[at]) for at in here) for state in states))
        states |= {
            (*state[:at], state[at] + 1, *state[at + 1 :])
            for state in states
            for at in here
            if state[at] < charts[tuples[at][0]].times[-1]
        }
    return least
