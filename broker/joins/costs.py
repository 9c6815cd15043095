"""What a plan costs for one arriving row: models whose coefficients are fitted on the machine that runs them.

Xie (2007), section 4.5.1, models four plans by the number of joining rows (k_j), of ranges whose x-interval holds the
arriving x (k_s), and of hot groups. Ours are the same but for two things. A hot group is no R-tree, probed at
sqrt(its ranges), but an envelope: two step functions, searched in log(their pieces). And a look-up of a
joining row in the k-d tree of all ranges ends at the first hit, so it has a part that does not grow with the ranges.

    JoinFirst-E   log rows + k_j + k_j sqrt(ranges)
    JoinFirst-S   log rows + k_j + ranges log k_j
    SelectFirst   log rows + log ranges + k_s + k_s log k_j
    Hotspot       log rows + groups log(pieces of a group) + groups log k_j + log cold + k_s cold (1 + log k_j)

with a coefficient each, in nanoseconds; "cold" are the ranges in no hot group, and of those that hold x as large a
share is taken to be cold as of all. Logarithms are to base 2, of one more than the number. What a plan finds is not
counted: making the result rows costs the same for all.

Each term is a factor known per batch times one of five numbers known per row: 1, k_j, log k_j, k_s, k_s log k_j. So a
plan's cost for a row is five multiplications (`weights`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, log2, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hullcast.network.wire.arrays import Floats, Ints

VERSION = 1

#: What is known per row, and multiplied with a factor.
ONE, K_J, LOG_K_J, K_S, K_S_LOG_K_J = range(5)
BASIS = 5


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


def _log_rows(facts: Facts) -> float:
    return log2(1 + facts.rows)


def _cold_share(facts: Facts) -> float:
    return facts.cold / max(1, facts.ranges)


#: The models; plans are numbered in this order.
MODELS: Mapping[str, tuple[Term, ...]] = {
    "JoinFirst-E": (
        Term("find the joining rows", _log_rows, ONE),
        Term("look up a joining row", lambda facts: 1.0, K_J),
        Term("look it up among many ranges", lambda facts: sqrt(facts.ranges), K_J),
    ),
    "JoinFirst-S": (
        Term("find the joining rows", _log_rows, ONE),
        Term("gather a joining row", lambda facts: 1.0, K_J),
        Term("look up a range among them", lambda facts: facts.ranges, LOG_K_J),
    ),
    "SelectFirst": (
        Term("find the joining rows", _log_rows, ONE),
        Term("find the ranges that hold x", lambda facts: log2(1 + facts.ranges), ONE),
        Term("take in such a range", lambda facts: 1.0, K_S),
        Term("look it up among joining rows", lambda facts: 1.0, K_S_LOG_K_J),
    ),
    "Hotspot": (
        Term("find the joining rows", _log_rows, ONE),
        Term(
            "look up x in a hot group",
            lambda facts: facts.groups * log2(2 + facts.pieces / max(1, facts.groups)),
            ONE,
        ),
        Term("look up a hot group among joining rows", lambda facts: facts.groups, LOG_K_J),
        Term("find the other ranges that hold x", lambda facts: log2(1 + facts.cold), ONE),
        Term("take in such a range", _cold_share, K_S),
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
        """(plan, BASIS): a plan's cost for a row is the sum of these times 1, k_j, log k_j, k_s and k_s log k_j."""
        weights = np.zeros((len(PLANS), BASIS))
        for plan, terms in enumerate(MODELS.values()):
            for value, term in zip(self.values[plan], terms, strict=True):
                weights[plan, term.per_row] += value * term.factor(facts)
        return weights

    def costs(self, facts: Facts, k_j: Floats, k_s: Floats) -> Floats:
        """(plan, row): nanoseconds that each plan is expected to take for each row."""
        costs: Floats = self.weights(facts) @ per_row(k_j, k_s)
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


def per_row(k_j: Floats, k_s: Floats) -> Floats:
    """(BASIS, row): the numbers that costs depend on."""
    log_k_j = np.log2(1 + k_j)
    return np.array([np.ones(len(k_j)), k_j, log_k_j, k_s, k_s * log_k_j])


class Measured(NamedTuple):
    """A run of one plan over rows that all have about the same k_j and k_s."""

    plan: int
    facts: Facts
    k_j: float
    k_s: float
    nanoseconds: float  # a row


class Fit(NamedTuple):
    """Coefficients, and how far predictions are off: the median of predicted / measured, either way up, less 1."""

    coefficients: Coefficients
    off: tuple[float, ...]


def fit(runs: list[Measured], machine: Mapping[str, str], before: Coefficients) -> Fit:
    """Least squares over measured runs, no coefficient below 0. A plan without a run keeps what it had.

    Errors count relative to what was measured: a plan is chosen by comparing costs of a microsecond as often as
    of a millisecond, and plain least squares would fit the milliseconds only.
    """
    values, off = [], []
    for plan, terms in enumerate(MODELS.values()):
        mine = [run for run in runs if run.plan == plan]
        if not mine:
            values.append(before.values[plan])
            off.append(np.nan)
            continue
        rows = per_row(np.array([run.k_j for run in mine]), np.array([run.k_s for run in mine]))
        design = np.array([[term.factor(run.facts) for term in terms] for run in mine])
        design *= rows[[term.per_row for term in terms]].T
        measured = np.array([run.nanoseconds for run in mine])
        found = least_squares(design / measured[:, None], np.ones(len(mine)))
        values.append(tuple(found.tolist()))
        ratio = np.maximum(design @ found, 1e-9) / measured
        off.append(float(np.median(np.maximum(ratio, 1 / ratio)) - 1))
    return Fit(Coefficients(tuple(values), machine), tuple(off))


def least_squares(design: Floats, wanted: Floats) -> Floats:
    """The x, none below 0, with the least |design @ x - wanted|.

    Of the few columns (at most six) every choice of those that are not 0 is tried: simple, and exact.
    """
    columns = design.shape[1]
    best, least = np.zeros(columns), float(wanted @ wanted)
    for choice in range(1, 1 << columns):
        chosen: Ints = np.flatnonzero([choice >> column & 1 for column in range(columns)])
        some, *_ = np.linalg.lstsq(design[:, chosen], wanted, rcond=None)
        if (some < 0).any():
            continue
        rest = design[:, chosen] @ some - wanted
        if rest @ rest < least * (1 - 1e-12):
            best, least = np.zeros(columns), float(rest @ rest)
            best[chosen] = some
    return best


#: Measured by `hullcast calibrate` on a virtual machine with two cores; how costs compare is alike on most machines.
DEFAULTS = Coefficients(
    (
        (12.0, 60.0, 0.5),
        (12.0, 5.0, 6.0),
        (12.0, 20.0, 12.0, 4.0),
        (12.0, 5.0, 8.0, 20.0, 12.0, 4.0),
    ),
    {},
)
