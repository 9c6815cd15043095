"""Lines made by hand, for judging claims and drawing charts."""

from __future__ import annotations

from hullcast.sim.experiments.traffic.summary import EventCost, TrafficLine


def a_line(x: float, placement: str, approach: str, bytes_: float, **other: float) -> TrafficLine:
    """A line that costs so many bytes per event; every other figure is plain unless given."""
    stress = int(other.get("stress", 2))
    cost = EventCost(
        placement,
        approach,
        events=int(other.get("events", 1_000)),
        changing=100,
        rectangles=0.2,
        affected=other.get("affected", 50.0),
        messages=bytes_ / 100,
        bytes=bytes_,
        byte_links=3 * bytes_,
        messages_changing=bytes_ / 10,
        bytes_changing=10 * bytes_,
        byte_links_changing=30 * bytes_,
        node_stress=float(stress),
        node_stress_p99=stress,
        node_stress_max=stress,
        link_stress=1.0,
        link_stress_p99=1,
        link_stress_max=1,
    )
    seconds, memory = other.get("seconds", 60.0), int(other.get("memory", 2e9))
    return TrafficLine("market", "INET", x, int(x), 10, int(other.get("brokers", 10)), seconds, memory, cost, cores=2)


def lines_of(
    curves: dict[str, list[float]], xs: list[float], placement: str = "can", **other: float
) -> list[TrafficLine]:
    """One line of a chart for each approach."""
    return [
        a_line(x, placement, approach, bytes_, **other)
        for approach, values in curves.items()
        for x, bytes_ in zip(xs, values, strict=True)
    ]
