"""Coefficients of cost models, fitted to runs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.joins.costs import DEFAULTS, MODELS, PLANS, Coefficients, Facts
from hullcast.sim.joins.fitting import PlanRun, fit, least_squares

MANY = Facts(rows=100_000, ranges=100_000, groups=30, pieces=30_000, cold=2_000)


@given(st.integers(0, 1000))
@settings(max_examples=25)
def test_a_fit_finds_the_coefficients_that_made_the_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = Coefficients(tuple(tuple(rng.uniform(1, 50, len(terms)).tolist()) for terms in MODELS.values()), {})
    runs = []
    for _ in range(60):
        rows, ranges, groups = (int(10 ** rng.uniform(1, 5)) for _ in range(3))
        facts = Facts(rows, ranges, groups, groups * int(rng.integers(1, 500)), int(ranges * rng.uniform()))
        k_j, k_s = float(10 ** rng.uniform(0, 4)), float(10 ** rng.uniform(0, 4))
        costs = true.costs(facts, np.array([k_j]), np.array([k_s]))[:, 0]
        runs += [PlanRun(plan, facts, k_j, k_s, float(costs[plan])) for plan in range(len(PLANS))]
    found = fit(runs, {"cores": "2"}, DEFAULTS)
    assert all(
        np.allclose(one, other, rtol=1e-4) for one, other in zip(found.coefficients.values, true.values, strict=True)
    )
    assert max(found.off) < 1e-6
    assert found.coefficients.machine == {"cores": "2"}


def test_a_plan_that_was_not_measured_keeps_its_coefficients() -> None:
    found = fit([PlanRun(0, MANY, 1, 1, 100.0)], {}, DEFAULTS)
    assert found.coefficients.values[1:] == DEFAULTS.values[1:]
    assert found.coefficients.values[0] != DEFAULTS.values[0]


@given(st.integers(0, 1000))
@settings(max_examples=25)
def test_least_squares_is_not_negative_and_no_small_step_makes_it_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    design, wanted = rng.normal(size=(20, 4)), rng.normal(size=20)
    x = least_squares(design, wanted)
    slope = design.T @ (design @ x - wanted)
    assert (x >= 0).all()
    assert np.allclose(slope[x > 0], 0)
    assert (slope[x == 0] >= -1e-9).all()
