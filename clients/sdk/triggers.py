"""When a conditional subscription is to be run, as users say it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hullcast.clients.sdk.connecting import positive_seconds
from hullcast.network.wire.bodies import LEAST_PAUSE_S, LEAST_PERIOD_S, MOST_PERIOD_S, MOST_TABLES, Trigger
from hullcast.network.wire.errors import BadSetting
from hullcast.network.wire.values import scalars

_NAME = r'(?:[^\W\d]\w*|"[^"]+")'
_NAMES = re.compile(rf"\s*{_NAME}(?:\s*,\s*{_NAME})*\s*")


def checked_trigger(when: object, parameters: Sequence[object], every: object, at_most_every: object) -> Trigger | None:
    """The trigger that `when=`, `when_parameters=`, `every=` and `at_most_every=` say, None without them; BadSetting,
    with what would be right, for what makes no sense. Of `when`, names alone are tables, all else is a SELECT."""
    tables: tuple[str, ...] = ()
    if (isinstance(when, str) and not when.strip()) or (isinstance(when, Sequence) and not when):
        raise BadSetting("when", when, "must name a table, or be a SELECT")
    if isinstance(when, str) and _NAMES.fullmatch(when):
        tables, when = tuple(name.strip('"') for name in re.findall(_NAME, when)), None
    elif isinstance(when, Sequence) and not isinstance(when, str | bytes) and all(isinstance(one, str) for one in when):
        tables, when = tuple(when), None
    elif when is not None and not isinstance(when, str):
        raise BadSetting("when", type(when).__name__, "must be a SELECT, or the name of a table, or several names")
    if len(tables) > MOST_TABLES:
        raise BadSetting("when", f"{len(tables)} tables", f"must be at most {MOST_TABLES} tables")
    if isinstance(parameters, str | bytes):
        raise BadSetting("when_parameters", parameters, "must be a sequence, with a value per `?` of `when`")
    bound = scalars(tuple(parameters))
    if when is None and bound:
        reason = "tables have no `?`" if tables else "there is no `when` that they could belong to"
        raise BadSetting("when_parameters", list(parameters), reason)
    every_s = _seconds("every", every, LEAST_PERIOD_S)
    pause_s = _seconds("at_most_every", at_most_every, LEAST_PAUSE_S)
    if pause_s is not None and when is None and not tables:
        raise BadSetting("at_most_every", at_most_every, "needs `when`: it limits how often its changes run the SELECT")
    if when is None and not tables and every_s is None:
        return None
    return Trigger(when, bound, every_s, tables, pause_s)


def _seconds(name: str, given: object, least: float) -> float | None:
    if given is None:
        return None
    seconds = positive_seconds(name, given)
    if not least <= seconds <= MOST_PERIOD_S:
        raise BadSetting(name, given, f"must be from {least:g} to {MOST_PERIOD_S:,.0f} seconds")
    return seconds
