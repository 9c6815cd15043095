"""Which base tables of a view are propagated now: one planner per file, the common part in `planner.py`."""

from __future__ import annotations

from hullcast.broker.views.planners.naive import Naive
from hullcast.broker.views.planners.online import Online
from hullcast.broker.views.planners.planner import ViewPlanner
from hullcast.broker.views.planners.thrifty import Thrifty

#: Planners that need no guess, by name; `Guessed` needs one of when the view is refreshed, and `Lgm` all that comes.
PLANNERS: dict[str, type[ViewPlanner]] = {planner.name: planner for planner in (Naive, Online, Thrifty)}
