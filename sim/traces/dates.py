"""Dates as files write them. A year in front says it all; a year at the end leaves open which is the day.

    2015-04-01  2015/4/1  2015.04.01  20150401        always
    04/01/2015  4-1-2015  01.04.2015                  if it is known what comes first, month or day
each alone, or before a time of day after a space or a T; the date counts as it is written, whatever zone follows.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column

#: What `--dates` takes: the order of month, day and year.
ORDERS = ("mdy", "dmy", "ymd")
_TIME = r"([T ].*)?$"
_YEAR_FIRST = r"^([12][0-9]{3})([-/.])([0-9]{1,2})\2([0-9]{1,2})" + _TIME
_COMPACT = r"^([12][0-9]{3})()([0-9]{2})([0-9]{2})" + _TIME
_YEAR_LAST = r"^([0-9]{1,2})([-/.])([0-9]{1,2})\2([12][0-9]{3})" + _TIME
#: Patterns, in the words that Java and Python share, and which groups are year, month and day.
_Form = tuple[str, tuple[int, int, int]]
_ALWAYS: tuple[_Form, ...] = ((_YEAR_FIRST, (1, 3, 4)), (_COMPACT, (1, 3, 4)))
_FORMS: dict[str, tuple[_Form, ...]] = {
    "": _ALWAYS,
    "ymd": _ALWAYS,
    "mdy": (*_ALWAYS, (_YEAR_LAST, (4, 1, 3))),
    "dmy": (*_ALWAYS, (_YEAR_LAST, (4, 3, 1))),
}


def date_of(text: str, order: str = "") -> datetime.date | None:
    """The date, or None if the text is none in this order."""
    for pattern, groups in _FORMS[order]:
        if found := re.match(pattern, text):
            try:
                return datetime.date(*(int(found[group]) for group in groups))
            except ValueError:
                return None
    return None


def day_of(text: Column, order: str = "") -> Column:
    """The same in Spark: NULL where there is no date."""
    from pyspark.sql import functions as f

    days = []
    for pattern, (year, month, day) in _FORMS[order]:
        written = f.regexp_replace(text, pattern, f"${year}-${month}-${day}")  # the pattern takes in all of the text
        days.append(f.when(text.rlike(pattern), written.try_cast("date")))
    return f.coalesce(*days)


def order_of(texts: Iterable[str], what: str) -> str:
    """What comes first in most of these dates: empty if that is the year, or mdy or dmy, as days after the 12th show.

    UsageError if it stays open; `what` is for the message.
    """
    seen: Counter[str] = Counter()
    such: dict[str, str] = {}
    for text in texts:
        kind = _kind(text)
        seen[kind] += 1
        such.setdefault(kind, text)
    last = seen["mdy"] + seen["dmy"] + seen["either"]
    if last <= seen["year first"]:
        return ""  # the others, if any, are odd ones among them
    if seen["mdy"] and seen["dmy"]:
        shown = f"{such['mdy']} and {such['dmy']}"
        raise UsageError(f"{what}: some dates have the month first and some the day ({shown}); say --dates mdy or dmy")
    if not seen["mdy"] and not seen["dmy"]:
        raise UsageError(
            f"{what}: it is not clear whether the month or the day comes first in dates such as {such['either']}; "
            "say --dates mdy or --dates dmy"
        )
    return "mdy" if seen["mdy"] else "dmy"


def asked_date(text: str, order: str = "") -> datetime.date:
    """A date that a user gives (`--from`), in any form that is clear; UsageError if it is not."""
    kind = _kind(text.strip())
    if kind == "either" and order not in ("mdy", "dmy"):
        raise UsageError(f"{text} can be read in two ways; write it as 2015-04-01, or say --dates mdy or --dates dmy")
    found = date_of(text.strip(), order or (kind if kind in _FORMS else ""))
    if found is None:
        told = f" with --dates {order}" if order else ""
        raise UsageError(f"{text!r} is not a date{told}; write it as 2015-04-01")
    return found


def _kind(text: str) -> str:
    if date_of(text) is not None:
        return "year first"
    known = [order for order in ("mdy", "dmy") if date_of(text, order) is not None]
    return {0: "none", 1: known[0] if known else "", 2: "either"}[len(known)]
