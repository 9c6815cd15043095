"""DISTINCT values of a range: a message says that a value appears in some ranges, or leaves them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.network.answers.answers import CollectionAnswers
from hullcast.network.answers.collection import ENTER, LEAVE
from hullcast.network.answers.rows import deliver

if TYPE_CHECKING:
    from hullcast.network.answers.audience import Audience
    from hullcast.network.wire.arrays import Booleans, Ints
    from hullcast.network.wire.columns import Columns


class DistinctAnswers(CollectionAnswers):
    """A set of values a listener; NULL is a value."""

    form = "rectangles"

    def hear(self, audience: Audience, columns: Columns) -> int:
        how = np.where(cast("Booleans", columns["appears"]), ENTER, LEAVE)
        told = 0
        for what, who in audience.inside(*self.sides(columns)):
            deliver(audience, who, what, how[what], cast("Ints", columns["seq"]), partial(self.entries, columns))
            told += len(who)
        return told

    def entries(self, columns: Columns, rows: Ints) -> list[tuple[Any, Any]]:
        values = self.values(self.spec.y_type, columns["value"], rows)
        return list(zip(values, values, strict=True))

    def shown(self, names: tuple[str, ...]) -> None:
        """The answer is a set."""

    def restored(self, stored: list[Any]) -> dict[Any, Any]:
        return {key: value for key, value in stored}  # noqa: C416  # the pairs came as lists
