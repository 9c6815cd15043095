"""The study of operators: its loads are right, its rows are the policies' own, and its sections judge every claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hullcast.clients.cli.main import FAILED, main
from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.studies import streams, studies
from hullcast.sim.experiments.studies.streams import example, latency, memory, variations
from hullcast.sim.experiments.studies.streams.simulated import charts_of
from hullcast.sim.experiments.studies.streams.workload import (
    BURSTS,
    CHAIN,
    CHANCE,
    ETHERNET,
    FOUR,
    FRACTION,
    POLICIES,
    QUERIES,
    TOGETHER,
    TWO,
    UDP,
    UDP_ALL,
    WINDOW,
    load_of,
    policy_of,
)
from hullcast.sim.experiments.study import Sweep
from hullcast.sim.experiments.sweeping import checked, parts_of
from hullcast.sim.traces.packets import ETHERNET as ETHERNET_FILE
from hullcast.sim.traces.packets import UDP as UDP_FILE
from hullcast.sim.traces.packets import PacketTrace
from tests.sim.experiments.asked import asked
from tests.support.shared_data import shared


def trace(name: str, seed: int, sizes: bool = False) -> PacketTrace:
    chance = np.random.default_rng(seed)
    times = np.cumsum(chance.exponential(1.0, 900) * chance.choice([0.1, 2.0], 900))
    return PacketTrace(name, times - times[0], chance.choice([0.5, 1.5], 900) if sizes else None)


TRACES = (trace(ETHERNET, 0, sizes=True), trace(UDP, 1))


PARTS: dict[str, Any] = {"example": example, "memory": memory, "latency": latency, "variations": variations}


def small(part: Any, seeds: int = 2, traces: Any = TRACES) -> Sweep:
    points = [{**point, "tuples": 600} if "tuples" in point else point for point in part.points(True, traces)]
    return Sweep([{**of, "seed": seed, **part.measure(of, seed, traces)} for seed in range(seeds) for of in points])


def test_the_parts_have_points_and_metrics_of_their_own() -> None:
    assert "streams" in studies()
    assert set(parts_of(streams.STUDY, quick=True)) == set(PARTS)
    for quick in (True, False):
        for part in PARTS.values():
            checked(part.points(quick))
            checked(part.points(quick, TRACES))
    assert {point.get("source", BURSTS) for part in PARTS.values() for point in part.points(True)} == {BURSTS}


def test_the_charts_have_the_shapes_that_the_paper_describes() -> None:
    (two,), (four,), (stored,) = (charts_of(QUERIES[query]) for query in (TWO, FOUR, "stored join"))
    assert two.envelope() == (0, 1, 2)
    assert four.envelope() == stored.envelope() == (0, 3, 4)
    assert max(four.steps()) == four.steps()[2]
    assert stored.sizes[2] > stored.sizes[1]
    assert four.steps()[1] < four.steps()[3]  # so Greedy runs the last operator before the second
    assert all(chart.times[-1] == 10 for chart in (two, four, stored))
    assert [chart.envelope() for chart in charts_of(QUERIES[WINDOW])] == [(0, 3, 4), (0, 2, 3)]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("source", [BURSTS, ETHERNET, UDP])
def test_a_load_brings_as_much_work_as_it_says(query: str, source: str) -> None:
    load = load_of(query, source, 500, FRACTION, 3, TRACES)
    found = load.run(policy_of(CHAIN))
    work = sum(
        chart.times[-1] * each.weights().sum()
        for chart, each in zip(charts_of(load.queries), load.arrivals, strict=True)
    )
    assert work / load.span == pytest.approx({BURSTS: 0.5}.get(source, 0.8), rel=0.05)
    assert found.ended >= work
    assert all((np.diff(each.times) >= 0).all() for each in load.arrivals)


def test_streams_of_one_query_share_a_trace_and_copies_are_whole() -> None:
    load = load_of(TOGETHER, UDP, 900, CHANCE, 0, TRACES)
    two, four, left, right = (len(each.times) for each in load.arrivals)
    assert two == four
    assert abs(left + right - two) <= 2  # one of them ends first, and so all do
    assert min(left, right) > 300


def test_seeds_choose_other_stretches_of_a_trace_and_other_bursts() -> None:
    for source in (BURSTS, UDP):
        first, again, other = (load_of(FOUR, source, 300, CHANCE, seed, TRACES).arrivals[0].times for seed in (0, 0, 1))
        assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize("name", POLICIES)
def test_rows_are_what_the_policies_themselves_decide(name: str) -> None:
    point = {"query": TOGETHER, "source": ETHERNET, "tuples": 200, "drop": CHANCE, "policy": name}
    row = memory.measure(point, 1, TRACES)
    load = load_of(TOGETHER, ETHERNET, 200, CHANCE, 1, TRACES)
    told = asked(policy_of(name), load.queries, load.arrivals, load.moments, seed=load.seed)
    assert row["peak"] == told.peak
    assert row["average"] == told.area / load.span
    assert row["latency longest"] == np.nanmax(told.latency)


def test_the_worked_example_holds() -> None:
    [section] = example.sections(small(example), Path())
    assert [claim.holds for claim in section.claims] == [True] * 3
    assert [claim.counted for claim in section.claims] == [True, False, False], "the digits of the table are lost"


def test_sections_judge_every_query_and_draw(tmp_path: Path) -> None:
    found = small(memory)
    sections = memory.sections(found, tmp_path, TRACES)
    assert len(sections) == len(QUERIES) + 2
    for section in sections[:-2]:
        assert len(section.claims) >= 9
        assert all(path.exists() for path in section.pictures.values())
    bounds = next(section for section in sections if section.name == "streams-bounds")
    proved = [claim for claim in bounds.claims if "moment" in claim.statement]
    assert len(proved) == 9
    assert all(claim.holds for claim in proved)


def test_the_latency_bound_is_kept_where_it_is_promised(tmp_path: Path) -> None:
    [section] = latency.sections(small(latency, seeds=1), tmp_path, TRACES)
    kept = [claim for claim in section.claims if "keeps every bound" in claim.statement]
    assert len(kept) == 6
    assert all(path.exists() for path in section.pictures.values())


def test_variations_are_judged_each(tmp_path: Path) -> None:
    sections = variations.sections(small(variations, seeds=1), tmp_path, TRACES)
    assert [section.name for section in sections] == ["streams-quantum", "streams-heartbeats", "streams-errors"]
    assert all(section.claims for section in sections)


def test_without_errors_charts_are_believed_as_they_are() -> None:
    point = {"what": "errors", "value": 0.0, "query": FOUR, "policy": CHAIN, "source": BURSTS, "tuples": 400}
    plain = {"query": FOUR, "source": BURSTS, "tuples": 400, "drop": CHANCE, "policy": CHAIN}
    assert variations.measure(point, 2)["peak"] == memory.measure(plain, 2)["peak"]


def test_a_folder_without_the_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not found"):
        streams.STUDY.given(tmp_path)


def test_data_for_a_study_without_any_is_refused_at_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "fanout", "--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == FAILED
    assert "fanout does not use real data; leave out --data" in capsys.readouterr().err
    assert main(["sim", "streams", "--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == FAILED
    assert "not found; leave out --data" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_with_real_data_the_study_has_more_points_and_nothing_is_left_out() -> None:
    folder = shared(ETHERNET_FILE).parent
    shared(UDP_FILE)
    study = streams.STUDY.given(folder)
    sources = {point.get("source") for points in parts_of(study, quick=False).values() for point in points}
    assert sources == {None, BURSTS, ETHERNET, UDP, UDP_ALL}
    assert study.folder == folder
    point = {"query": FOUR, "source": UDP, "tuples": 500, "drop": CHANCE, "policy": CHAIN}
    assert next(part for part in study.parts if part.name == "memory").measure(point, 0)["peak"] > 0
