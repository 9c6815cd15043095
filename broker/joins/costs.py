"""What a plan costs for one arriving row: models whose coefficients are measured on this machine.

Xie (2007), section 4.5.1, models four plans by the number of joining rows (k_j), of ranges whose x-interval holds the
arriving x (k_s), and of hot groups. Ours differ where our structures do. A hot group is no R-tree, probed at
sqrt(its ranges), but an envelope: two step functions, searched in log(their pieces). A joining row is looked up
in a k-d tree, which cuts off the ranges that do not hold x and stops at the first hit: what was measured follows
sqrt(k_s), not sqrt(ranges). x-intervals lie in a k-d tree too, not in a priority search tree: sqrt(ranges), not log;
those found are sorted and united before they are looked up (up to some thousands that takes about as long for
each). JoinFirst-S looks at every range, but looks only those up that hold x; Hotspot only groups that have such ranges,
which are no more than k_s: min(groups, k_s), here without a kink, groups k_s / (groups + k_s).

    JoinFirst-E   log rows + k_j log ranges + k_j sqrt(k_s)
    JoinFirst-S   log rows + k_j + ranges + k_s log k_j
    SelectFirst   log rows + sqrt(ranges) + k_s + k_s log k_j
    Hotspot       log rows + groups log(pieces of a group) + min(groups, k_s) log k_j
                  + sqrt(cold) + (share of cold) (k_s + k_s log k_j)

with a coefficient each, in nanoseconds; "cold" are the ranges in no hot group, and of those that hold x as large a
share is taken to be cold as of all. Logarithms are to base 2, of one more than the number. What a plan finds is not
counted: making the result rows costs the same for all.

Each term is a factor known per batch times one of six numbers known per row: 1, k_j, k_j sqrt(k_s), k_s,
k_s log k_j and min(groups, k_s) log k_j. So a plan's cost for a row is six multiplications (`weights`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, log2, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hullcast.network.wire.arrays import Floats

VERSION = 1

#: What is known per row, and multiplied with a factor.
ONE, K_J, K_J_ROOT_K_S, K_S, K_S_LOG_K_J, GROUPS_LOG_K_J = range(6)
BASIS = 6


class Facts(NamedTuple):
    """What is the same for all rows of a batch."""

    rows: int  # on the other side
    ranges: int  # distinct ones
    groups: int = 0  # hot ones
    pieces: int = 0  # of the envelopes of all hot groups together
    cold: int = 0  # ranges in no hot group
    changed: int = 0  # changes of the other side so far: a counter that only rises
    y_low: float = -np.inf  # the lowest and the highest y that anybody wants
    y_high: float = np.inf


class Term(NamedTuple):
    """A part of a plan's cost: coefficient * factor * what is known per row."""

    name: str
    factor: Callable[[Facts], float]
    per_row: int


def _cold_share(facts: Facts) -> float:
    return facts.cold / max(1, facts.ranges)


_SEEK = Term("find the joining rows", lambda facts: log2(1 + facts.rows), ONE)

#: The models; plans are numbered in this order.
MODELS: Mapping[str, tuple[Term, ...]] = {
    "JoinFirst-E": (
        _SEEK,
        Term("look up a joining row", lambda facts: log2(1 + facts.ranges), K_J),
        Term("tell ranges that hold x apart", lambda facts: 1.0, K_J_ROOT_K_S),
    ),
    "JoinFirst-S": (
        _SEEK,
        Term("list a joining row", lambda facts: 1.0, K_J),
        Term("look at a range", lambda facts: facts.ranges, ONE),
        Term("look it up in the list", lambda facts: 1.0, K_S_LOG_K_J),
    ),
    "SelectFirst": (
        _SEEK,
        Term("find the ranges that hold x", lambda facts: sqrt(facts.ranges), ONE),
        Term("sort such a range", lambda facts: 1.0, K_S),
        Term("look it up among joining rows", lambda facts: 1.0, K_S_LOG_K_J),
    ),
    "Hotspot": (
        _SEEK,
        Term(
            "look up x in a hot group", lambda facts: facts.groups * log2(2 + facts.pieces / max(1, facts.groups)), ONE
        ),
        Term("look up a hot group among joining rows", lambda facts: 1.0, GROUPS_LOG_K_J),
        Term("find cold ranges that hold x", lambda facts: sqrt(facts.cold), ONE),
        Term("sort such a range", _cold_share, K_S),
        Term("look it up among joining rows", _cold_share, K_S_LOG_K_J),
    ),
}
PLANS = tuple(MODELS)
JOIN_FIRST_E, JOIN_FIRST_S, SELECT_FIRST, HOTSPOT = range(4)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Nanoseconds per term of each plan, none below 0; and where they were measured."""

    values: tuple[tuple[float, ...], ...]
    machine: Mapping[str, str]

    def weights(self, facts: Facts) -> Floats:
        """(plan, BASIS): a plan's cost for a row is the sum of these times the numbers of `per_row`."""
        weights = np.zeros((len(PLANS), BASIS))
        for plan, terms in enumerate(MODELS.values()):
            for value, term in zip(self.values[plan], terms, strict=True):
                weights[plan, term.per_row] += value * term.factor(facts)
        return weights

    def costs(self, facts: Facts, k_j: Floats, k_s: Floats) -> Floats:
        """(plan, row): nanoseconds that each plan is expected to take for each row."""
        costs: Floats = self.weights(facts) @ per_row(k_j, k_s, facts.groups)
        return costs

    def to_json(self) -> str:
        """As a text that `from_json` reads."""
        plans = {
            plan: {term.name: value for term, value in zip(terms, values, strict=True)}
            for (plan, terms), values in zip(MODELS.items(), self.values, strict=True)
        }
        content = {"version": VERSION, "unit": "ns", "machine": dict(self.machine), "plans": plans}
        return json.dumps(content, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Coefficients:
        """Checked; ValueError says what is wrong."""
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("version") != VERSION:
            found = content.get("version") if isinstance(content, dict) else None
            raise ValueError(f"its version is {found!r}, this program reads {VERSION}")
        machine, plans = content.get("machine", {}), content.get("plans")
        if not isinstance(machine, dict) or not isinstance(plans, dict):
            raise ValueError('it lacks "machine" or "plans"')
        values = tuple(
            tuple(_coefficient(plans.get(plan), plan, term.name) for term in terms) for plan, terms in MODELS.items()
        )
        return cls(values, {str(name): str(fact) for name, fact in machine.items()})


def _coefficient(terms: object, plan: str, name: str) -> float:
    value = terms.get(name) if isinstance(terms, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (isfinite(value) and value >= 0):
        raise ValueError(f"{plan}, {name!r}: {value!r} is not a number of nanoseconds (0 or more)")
    return float(value)


def per_row(k_j: Floats, k_s: Floats, groups: Floats | float) -> Floats:
    """(BASIS, row): the numbers that costs depend on."""
    log_k_j, reached = np.log2(1 + k_j), groups * k_s / np.maximum(groups + k_s, 1)
    return np.array([np.ones(len(k_j)), k_j, k_j * np.sqrt(k_s), k_s, k_s * log_k_j, reached * log_k_j])


#: Measured by `hullcast calibrate` on a virtual machine with two cores; how costs compare is alike on most machines.
DEFAULTS = Coefficients(
    (
        (7.0, 32.0, 10.5),
        (10.0, 13.5, 1.2, 4.2),
        (32.0, 0.4, 45.0, 2.6),
        (1.0, 2.2, 18.0, 5.0, 44.0, 1.2),
    ),
    {},
)
