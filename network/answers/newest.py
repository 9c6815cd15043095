"""Kernels for listeners that want only their latest answer: an event is a few array cells.

`latest` holds the sequence number of each listener's last change, `fresh` how many there were since one was taken.
Whoever follows many listeners needs to know only whose `fresh` leaves zero (the *news*): until it is taken each of
them is named once, however often it changes. `told` holds the answer last taken. An answer that went and came back
until somebody takes it is no event: that is found out when taking, so that messages cost no comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.answers.aggregate import same
from hullcast.network.compiled import kernel
from hullcast.network.matching.duality import rectangle_box
from hullcast.network.matching.search import STACK, report
from hullcast.network.matching.tree import longer

if TYPE_CHECKING:
    from hullcast.network.matching.tree import Tree
    from hullcast.network.wire.arrays import Floats, Ints


@kernel
def settle(who: Ints, seqs: Ints, latest: Ints, fresh: Ints) -> Ints:
    """Note changes in order, of several of one listener the last; returns the news."""
    news, count = np.empty(len(who), np.int64), 0
    for k in range(len(who)):
        listener = who[k]
        latest[listener] = seqs[k]
        news[count] = listener
        count += fresh[listener] == 0
        fresh[listener] += 1
    return news[:count]


@kernel
def replace_newest(
    tree: Tree,
    inner_l: Floats,
    inner_r: Floats,
    outer_l: Floats,
    outer_r: Floats,
    partitions: Floats,
    seqs: Ints,
    best: Floats,
    values: Floats,
    latest: Ints,
    fresh: Ints,
) -> tuple[int, Ints]:
    """Find who hears each rectangle message and give them its answer, in order, without listing the pairs.

    The same as `in_rectangles`, `ExtremumAnswers.hear` and `settle` one after the other; returns how many pairs there
    were, and the news.
    """
    width = 2 if len(partitions) == 0 else 3
    low, high, stack = np.empty(width), np.empty(width), np.empty(STACK, np.int64)
    ids, news, count, told = np.empty(64, np.int64), np.empty(64, np.int64), 0, 0
    for i in range(len(inner_l)):
        rectangle_box(low, high, inner_l[i], inner_r[i], outer_l[i], outer_r[i])
        if width == 3:
            low[2] = high[2] = partitions[i]
        ids, used = report(tree, low, high, ids, 0, stack)
        told += used
        if count + used > len(news):
            news = longer(news, count, used)
        for k in range(used):
            listener = ids[k]
            values[listener] = best[i]
            latest[listener] = seqs[i]
            news[count] = listener
            count += fresh[listener] == 0
            fresh[listener] += 1
    return told, news[:count]


@kernel
def take_newest(
    candidates: Ints,
    values: Floats,
    rests: Floats,
    told: Floats,
    told_rests: Floats,
    fresh: Ints,
    conflated: Ints,
    gaps: Ints,
) -> Ints:
    """Take the events of the candidates, whose answers are now (values, rests): where in `candidates` those stand that
    have one, each listener once. Their other changes were conflated.

    There is one if the answer is another than the one last taken, or if something was missed (`gaps`).
    """
    taken, count = np.empty(len(candidates), np.int64), 0
    for k in range(len(candidates)):
        listener = candidates[k]
        if fresh[listener] > 0:
            conflated[listener] += fresh[listener]
            fresh[listener] = 0
            if gaps[listener] or not same(values[k], rests[k], told[listener], told_rests[listener]):
                conflated[listener] -= 1
                told[listener], told_rests[listener] = values[k], rests[k]
                taken[count] = k
                count += 1
    return taken[:count]
