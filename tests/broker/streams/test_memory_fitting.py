"""Models fitted to what streams showed, and what they make of the tuples of a running join."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.broker.streams.memory.bounded_join import FIT_EVERY, LEFT, RIGHT, BoundedJoin, JoinWindow, KeepBy
from hullcast.broker.streams.memory.fitting import (
    FEWEST,
    RECENT,
    Fits,
    FittedStream,
    fitted,
    quartiles,
    sum_normals,
    sum_passages,
)
from hullcast.broker.streams.memory.worth import LIFETIME, alpha_of
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.experiments.studies.caching.curves import Surface, WalkCurve
from hullcast.sim.experiments.studies.caching.models import (
    Autoregressive,
    LinearTrend,
    RandomWalk,
    StreamModel,
    normal_chances,
)
from tests.support.heeb_oracles import DirectWorth

SEEDS = range(5)


def drawn(model: str, n: int, seed: int, unit: float = 1.0) -> Floats:
    chance = np.random.default_rng(seed)
    t = np.arange(n)
    noise = chance.normal(0, 1, n)
    if model == "normal":
        shown = np.asarray(100 + 20 * noise, np.float64)
    elif model == "uniform":
        shown = chance.integers(0, 3_000, n).astype(float)
    elif model == "skewed":
        shown = np.minimum(chance.zipf(1.3, n), 10_000).astype(float)
    elif model == "one value":
        shown = np.full(n, 7.0)
    elif model == "rising":
        shown = np.asarray(0.7 * t + 5 * noise, np.float64)
    elif model == "falling":
        shown = -2.0 * t + 30 * chance.uniform(-1, 1, n)
    elif model == "counting":
        shown = np.floor(t / 3.0)
    elif model == "walk in noise":
        shown = np.cumsum(3 * noise) + chance.normal(0, 12, n)
    elif model == "walk":
        shown = np.cumsum(3 * noise)
    elif model == "drifting":
        shown = np.cumsum(3 * noise + 1)
    else:
        shown = np.empty(n)
        at = 0.0
        for place in range(n):
            at = 0.72 * at + 42 * noise[place]
            shown[place] = at
    return np.rint(shown) * unit


@pytest.mark.parametrize("unit", [1.0, 0.25, 1e6])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("stream", "model"),
    [
        ("normal", Fits.STATIONARY), ("uniform", Fits.STATIONARY), ("skewed", Fits.STATIONARY),
        ("one value", Fits.STATIONARY), ("rising", Fits.TREND), ("falling", Fits.TREND), ("counting", Fits.TREND),
        ("walk", Fits.WALK), ("drifting", Fits.WALK), ("walk in noise", Fits.WALK),
        ("autoregressive", Fits.AR1),
    ],
)  # fmt: skip
def test_the_model_that_a_stream_was_drawn_from_is_found(stream: str, model: Fits, seed: int, unit: float) -> None:
    assert fitted(drawn(stream, RECENT, seed, unit)).model is model


def test_fitted_numbers_are_those_drawn_from() -> None:
    trend = fitted(drawn("rising", RECENT, 1), first=0)
    assert trend.slope == pytest.approx(0.7, rel=0.01)
    assert trend.deviation == pytest.approx(5.0, rel=0.1)
    later = fitted(drawn("rising", RECENT, 1), first=5_000)
    assert later.slope * 5_000 + later.base == pytest.approx(trend.base)
    ar1 = fitted(drawn("autoregressive", RECENT, 1))
    assert ar1.factor == pytest.approx(0.72, abs=0.06)
    assert ar1.deviation == pytest.approx(42, rel=0.1)
    walk = fitted(drawn("drifting", RECENT, 1))
    assert walk.slope == pytest.approx(1.0, abs=0.3)
    assert walk.deviation == pytest.approx(3.0, rel=0.1)
    assert walk.smooth == 1.0
    assert fitted(drawn("walk in noise", RECENT, 1)).smooth in (0.12, 0.25)


@pytest.mark.parametrize("stream", ["rising", "walk", "autoregressive"])
def test_outliers_and_nulls_change_little(stream: str) -> None:
    values = drawn(stream, RECENT, 2)
    plain = fitted(values)
    values[100:900:200] = 1e9
    values[50::10] = np.nan
    robust = fitted(values)
    assert robust.model is plain.model
    if plain.model is Fits.TREND:
        assert robust.slope == pytest.approx(plain.slope, rel=0.05)
    if plain.model is Fits.AR1:
        assert robust.factor == pytest.approx(plain.factor, abs=0.2)


def test_few_values_are_taken_for_stationary() -> None:
    assert fitted(np.arange(FEWEST - 1.0)).model is Fits.STATIONARY
    assert fitted(np.arange(FEWEST * 1.0)).model is Fits.TREND
    assert fitted(np.full(RECENT, np.nan)).model is Fits.STATIONARY


def kept_worths(model: FittedStream, values: Ints, shown: Ints, window: JoinWindow) -> tuple[Floats, float]:
    """What tuples of the left side with these values are worth when the right side has shown these; and alpha.

    The left ones come last: all in the same place of their window.
    """
    join = BoundedJoin(window, JoinWindow(), len(values), KeepBy.HEEB)
    join.declare(RIGHT, model)
    join.declare(LEFT, FittedStream(Fits.STATIONARY))
    n = FIT_EVERY
    right = np.resize(shown, n - len(values))
    right[-len(shown) :] = shown
    sides = np.r_[np.full(len(right), RIGHT), np.full(len(values), LEFT)]
    all_values = np.r_[right, values].astype(float)
    ordinals = np.r_[np.arange(len(right)), np.arange(len(values))]
    join.add(sides, all_values, ordinals, np.arange(n, dtype=np.float64))
    join._clock[LIFETIME] = 40.0
    join._fit()
    numbers, worths = join.worths()
    assert (numbers >= len(right)).all(), "the left ones are all that is kept"
    return worths, alpha_of(40.0 * float(join._clock[4 + RIGHT]))


def close(found: Floats, wanted: Floats, tolerance: float) -> None:
    assert np.abs(found - wanted).max() <= tolerance * wanted.max()
    assert wanted.max() > 0


def test_worth_under_a_trend_is_about_the_direct_sum() -> None:
    noise = normal_chances(6.0, 15)
    sample = np.repeat(noise.values(), np.rint(noise.each * 4_000).astype(int)).astype(float)
    for slope, last in ((1.0, 300), (-1.0, -300)):
        fit = FittedStream(Fits.TREND, 1.0, slope, 0.0, np.sort(sample))
        shown = (slope * np.arange(50)).astype(np.int64)
        values = np.arange(-25, 40) * int(slope)
        n = FIT_EVERY - len(values)
        base = FittedStream(Fits.TREND, 1.0, slope, -slope * (n - 1), np.sort(sample))
        worths, alpha = kept_worths(base, values, shown, JoinWindow())
        model: StreamModel = LinearTrend(slope, 0, noise)
        close(worths, DirectWorth(model, alpha, False).of(values, 0, last), 0.06)
        assert fit.noise is not None


def test_worth_on_a_walk_is_about_the_direct_sum() -> None:
    fit = FittedStream(Fits.WALK, 1.0, deviation=3.0)
    values = np.arange(60, 141)
    worths, alpha = kept_worths(fit, values, np.full(50, 100), JoinWindow())
    close(worths, WalkCurve(RandomWalk(normal_chances(3.0)), alpha).of(values, 0, 100), 0.06)


def test_worth_on_an_autoregressive_stream_is_about_the_direct_sum() -> None:
    fit = FittedStream(Fits.AR1, 1.0, base=56.0, factor=0.72, deviation=42.0)
    values = np.arange(40, 361, 4)
    worths, alpha = kept_worths(fit, values, np.full(50, 260), JoinWindow())
    close(worths, Surface(Autoregressive(0.72, 56.0, 42.0), alpha, points=0).of(values, 0, 260), 0.06)


@pytest.mark.parametrize("kind", [Fits.TREND, Fits.WALK, Fits.AR1])
def test_what_will_soon_leave_its_window_is_worth_less(kind: Fits) -> None:
    noise = np.linspace(-15, 15, 301)
    values = np.arange(-10, 11) + 100
    fit = FittedStream(kind, 1.0, 1.0 if kind is Fits.TREND else 0.0, 50.0, noise, 0.5, 4.0)
    if kind is Fits.TREND:
        fit = FittedStream(kind, 1.0, 1.0, 100.0 - (FIT_EVERY - len(values) - 1), noise)
    shown = np.full(50, 100)
    whole, _ = kept_worths(fit, values, shown, JoinWindow())
    soon, _ = kept_worths(fit, values, shown, JoinWindow(span=len(values) + 1))
    assert (soon <= whole + 1e-9).all()
    assert soon.sum() < 0.99 * whole.sum()


def arrivals(n: int, values: Floats) -> tuple[Ints, Floats, Ints, Floats]:
    return np.arange(n) % 2, values, np.arange(n) // 2, np.arange(n, dtype=np.float64)


@pytest.mark.parametrize("memory", [50, 400])
@pytest.mark.parametrize("stream", ["rising", "falling", "walk"])
def test_heeb_with_fitted_models_is_ahead_of_all_others(stream: str, memory: int) -> None:
    n = 20_000
    chance = np.random.default_rng(9)
    common = drawn(stream, n // 2, 3) if stream != "walk" else np.cumsum(np.rint(2 * chance.normal(0, 1, n // 2)))
    values = np.repeat(common, 2) + np.rint(8 * chance.normal(0, 1, n))
    results = {}
    for policy in KeepBy:
        join = BoundedJoin(JoinWindow(rows=2_000), JoinWindow(rows=2_000), memory, policy)
        results[policy] = len(join.add(*arrivals(n, values)).kept)
    others = max(found for policy, found in results.items() if policy is not KeepBy.HEEB)
    assert results[KeepBy.HEEB] >= 0.99 * others, "where memory is enough for all, a few are dropped too early"


def test_it_makes_no_difference_where_batches_end_while_models_are_fitted() -> None:
    n = 3 * FIT_EVERY
    sides, values, ordinals, times = arrivals(n, np.repeat(drawn("rising", n // 2, 1), 2))
    at_once = BoundedJoin(JoinWindow(), JoinWindow(), 30)
    whole = at_once.add(sides, values, ordinals, times)
    pieces = BoundedJoin(JoinWindow(), JoinWindow(), 30)
    kept = []
    for at in range(0, n, 700):
        some = slice(at, at + 700)
        kept.append(pieces.add(sides[some], values[some], ordinals[some], times[some]).kept)
    assert np.concatenate(kept).tolist() == whole.kept.tolist()
    assert [model.model for model in pieces.models()] == [Fits.TREND, Fits.TREND]
    assert [model.slope for model in pieces.models()] == [model.slope for model in at_once.models()]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 63, 1_024])
def test_quartiles_are_those_of_numpy(count: int) -> None:
    for seed in SEEDS:
        values = np.random.default_rng(seed).integers(0, 9, count).astype(np.float64)
        assert quartiles(values) == pytest.approx(tuple(np.percentile(values, (25, 50, 75))))


@pytest.mark.parametrize("step", [0.01, 1.0, 40.0])
def test_normal_curves_are_summed_as_exponentials_would_be(step: float) -> None:
    chance = np.random.default_rng(2)
    expected = chance.uniform(-400.0, 400.0, (6, 3)) * step  # inside, and on both sides
    heights, variances = chance.random(6), chance.uniform(0.1, 90.0, 6) ** 2 * step
    at = step * np.arange(-128.0, 129.0)
    curves = np.full((3, 2, 257), np.nan)
    sum_normals(heights, expected, variances, at[0], step, np.arange(6) % 3 == 2, curves)
    each = heights[:, None, None] * np.exp(-0.5 * (at - expected[:, :, None]) ** 2 / variances[:, None, None])
    assert curves[:, 0] == pytest.approx(each[:3].sum(axis=0), rel=1e-9, abs=1e-280)
    assert curves[:, 1] == pytest.approx(each.sum(axis=0), rel=1e-9, abs=1e-280)


@pytest.mark.parametrize("alpha", [1.5, 50.0, 4_000.0])
@pytest.mark.parametrize("slope", [0.01, 1.0, 30.0])
def test_a_curve_over_a_trend_is_the_sum_over_bins_of_the_noise(slope: float, alpha: float) -> None:
    chance = np.random.default_rng(4).random(64)
    edges, at = np.linspace(-32.0, 32.0, 65), np.linspace(-32.0, 32.0, 257)
    curve = np.empty(257)
    sum_passages(chance, edges, slope, alpha, -32.0, 0.25, curve)
    begin = np.maximum(0.5, (at[:, None] - edges[1:]) / slope)
    end = np.maximum(0.5, (at[:, None] - edges[:-1]) / slope)
    wanted = (chance * alpha * (np.exp(-begin / alpha) - np.exp(-end / alpha))).sum(axis=1)
    assert curve == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    assert ((curve == 0.0) == (wanted == 0.0)).all(), "what is behind the noise is worth nothing"
