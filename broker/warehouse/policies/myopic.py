"""Myopic: loads the table whose oldest pending update was released first (Bateni et al. (2009))."""

from __future__ import annotations

from typing import ClassVar

from hullcast.broker.warehouse.policies.updates_first import UpdatesFirst


class Myopic(UpdatesFirst):
    """Never leaves a place idle while a table could be loaded: the paper calls that eager. Total staleness is then
    within a constant of the least possible if loads are fast enough (Theorem 3.1).

    Feeds are all that the paper has; questions are answered, in their turn, on places that loads leave free. That is
    what updates-first does too: a load takes all that waits for its table, so no other order of updates is left.
    """

    name: ClassVar[str] = "myopic"
    about: ClassVar[str] = "loads the table that has waited longest; queries get the workers that are left"
