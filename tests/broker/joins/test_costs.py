"""Cost models: what they predict, and what is read from a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.joins.costs import (
    DEFAULTS,
    MODELS,
    PLANS,
    Coefficients,
    Facts,
    per_row,
)

MANY = Facts(rows=100_000, ranges=100_000, groups=30, pieces=30_000, cold=2_000)


def test_a_cost_is_the_sum_of_its_terms() -> None:
    costs = DEFAULTS.costs(MANY, np.array([0.0, 7.0]), np.array([3.0, 100.0]))
    for plan, terms in enumerate(MODELS.values()):
        factors = np.array([term.factor(MANY) for term in terms])
        numbers = per_row(np.array([0.0, 7.0]), np.array([3.0, 100.0]), MANY.groups)[[term.per_row for term in terms]]
        assert np.allclose(costs[plan], (np.array(DEFAULTS.values[plan]) * factors) @ numbers)


def test_default_costs_say_what_is_obvious() -> None:
    one_row, one_range, many = DEFAULTS.costs(
        MANY, np.array([1.0, 1000.0, 1000.0]), np.array([10_000.0, 1.0, 20_000.0])
    ).T
    assert PLANS[int(np.argmin(one_row))] == "JoinFirst-E"
    assert PLANS[int(np.argmin(one_range))] == "SelectFirst"
    assert PLANS[int(np.argmin(many))] == "Hotspot"


def test_coefficients_survive_the_way_through_a_file() -> None:
    there = Coefficients(DEFAULTS.values, {"processor": "x86_64", "cores": "2"})
    assert Coefficients.from_json(there.to_json()) == there


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version is 2, this program reads 1"),
        ({"plans": 3}, 'lacks "machine" or "plans"'),
        ({"machine": []}, 'lacks "machine" or "plans"'),
        ({"plans": {}}, "JoinFirst-E, 'find the joining rows': None is not a number"),
    ],
)
def test_a_file_that_is_not_right_is_refused_with_a_reason(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Coefficients.from_json(json.dumps(json.loads(DEFAULTS.to_json()) | change))


@pytest.mark.parametrize("bad", [-1, "3", None, True, float("nan"), float("inf")])
def test_a_coefficient_is_a_number_of_nanoseconds(bad: object) -> None:
    content = json.loads(DEFAULTS.to_json())
    content["plans"]["Hotspot"]["sort such a range"] = bad
    with pytest.raises(ValueError, match=r"Hotspot, 'sort such a range': .* is not a number of nanoseconds"):
        Coefficients.from_json(json.dumps(content))


@given(st.one_of(st.text(max_size=20), st.recursive(st.none() | st.integers(), st.lists).map(json.dumps)))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (JSON's own words, or ours)
        Coefficients.from_json(text)
