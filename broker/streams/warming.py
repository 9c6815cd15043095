"""Compile, or load, what the streams process runs, before it says that it is there.

To compile takes seconds, and on a busy machine a minute: a process that does it while it serves is silent for so long,
and the server would take it to hang.
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.live import MonotonicClock
from hullcast.broker.streams.memory.fitting import Fits, FittedStream, fitted, write_curves
from hullcast.broker.streams.memory.worth import new_beliefs
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.streams.plan import StreamInput, StreamQuery, TableInput, WantedRanges
from hullcast.broker.streams.policies.policy import FifoPolicy
from hullcast.broker.streams.runner import Runner


def run_operators() -> None:
    """The operators of stream queries, as the streams process runs them."""
    runner = Runner(FifoPolicy(), MonotonicClock())
    ranges, window = WantedRanges((0,), (((0.0, 1.0),),)), StreamWindow(rows=400)
    left, right = StreamInput("r", 1, ranges, window), StreamInput("s", 1, None, window)
    runner.open(StreamQuery(left, right, ((0, 0),), ((0, 0), (1, 0))))
    runner.open(StreamQuery(left, right, ((0, 0),), ((0, 0), (1, 0)), memory=300))
    runner.open(StreamQuery(left, TableInput("t", 1, 0), ((0, 0),), ((0, 0),)))
    for first in (1, 501):  # more than there is room for at first
        codes, seqs = np.arange(float(first), first + 500.0), np.arange(first, first + 500)
        runner.change("t", TableChanges(seqs, codes[None, :], np.zeros(500, np.bool_)))
        for stream in "rs":
            reached = StreamMoment(0.0, first + 499)
            runner.arrive(stream, TupleBatch(seqs, np.zeros(500), codes[None, :], reached, 0.0))
    while runner.step():
        pass
    beliefs = new_beliefs(2, 2, 3)
    fitted(np.tile([0.0, 1.0, 1.0], 30))
    for model in (Fits.TREND, Fits.WALK, Fits.AR1):  # what streams may be taken for
        fit = FittedStream(model, slope=1.0, noise=np.zeros(1), factor=0.5)
        write_curves(fit, 10.0, beliefs.terms[0], beliefs.curves[0])
