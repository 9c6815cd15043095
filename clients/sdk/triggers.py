"""When a conditional subscription is to be run, as users say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.clients.sdk.connecting import positive_seconds
from hullcast.network.wire.bodies import LEAST_PERIOD_S, MOST_PERIOD_S, Trigger
from hullcast.network.wire.errors import BadSetting
from hullcast.network.wire.values import scalars

if TYPE_CHECKING:
    from collections.abc import Sequence


def checked_trigger(when: object, parameters: Sequence[object], every: object) -> Trigger | None:
    """The trigger that `when=`, `when_parameters=` and `every=` say, None without them; BadSetting, with what would be
    right, for what makes no sense."""
    if when is not None and not isinstance(when, str):
        raise BadSetting("when", type(when).__name__, "must be a SELECT, as a str")
    if isinstance(parameters, str | bytes):
        raise BadSetting("when_parameters", parameters, "must be a sequence, with a value per `?` of `when`")
    bound = scalars(tuple(parameters))
    if when is None and bound:
        raise BadSetting("when_parameters", list(parameters), "there is no `when` that they could belong to")
    every_s = None if every is None else positive_seconds("every", every)
    if every_s is not None and not LEAST_PERIOD_S <= every_s <= MOST_PERIOD_S:
        raise BadSetting("every", every, f"must be from {LEAST_PERIOD_S:g} to {MOST_PERIOD_S:,.0f} seconds")
    return None if when is None and every_s is None else Trigger(when, bound, every_s)
