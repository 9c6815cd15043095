"""The last word on every key among many changes, so that a load writes each key once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.log.changes import ChangeBatch
    from hullcast.network.wire.arrays import Floats, Ints


class Coalesced(NamedTuple):
    """What became of the keys that changed: the rows that are there, of shape (columns, rows), and the keys of those
    that are gone; both ordered by the codes of their keys."""

    rows: Floats
    gone: Floats


def last_words(keys: Floats) -> Ints:
    """Where each distinct key occurs last, ordered by key. Keys are codes, none of them NULL."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    last: Ints = order[np.append(ordered[1:] != ordered[:-1], np.ones(min(1, len(keys)), np.bool_))]
    return last


def coalesced(batches: Sequence[ChangeBatch], key: int) -> Coalesced:
    """The last word of batches of whole rows, which follow each other, on every key (the column at `key`)."""
    if len(batches) == 1:
        cells = batches[0].cells
    else:
        cells = np.concatenate([batch.cells for batch in batches], axis=1)
    deleted = np.repeat([batch.deleted for batch in batches], [batch.cells.shape[1] for batch in batches])
    last = last_words(cells[key])
    is_gone = deleted[last]
    return Coalesced(cells[:, last[~is_gone]], cells[key, last[is_gone]])
