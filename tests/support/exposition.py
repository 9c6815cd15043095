"""What a Prometheus server reads from /metrics: parsed by the client library, and checked for what a server refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from hullcast.broker.server.metrics import server_metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hullcast.broker.server.service import Server

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def read_metrics(text: str) -> dict[str, Metric]:
    """The families by the name of their samples; in OpenMetrics if the text ends as that format wants it."""
    families: dict[str, Metric] = {}
    for family in (read_openmetrics if text.endswith("# EOF\n") else read_text)(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in families, f"{name} is there twice"
        assert family.type in ("counter", "gauge"), f"{name} has no type"
        assert family.documentation, f"{name} has no help text"
        assert all(sample.name == name for sample in family.samples), family.samples
        series = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(series) == len(set(series)), f"{name} has two samples with the same labels"
        families[name] = family
    return families


def only_value(family: Metric) -> float:
    """The value of a family that has one sample."""
    (sample,) = family.samples
    return float(sample.value)


def samples(server: Server, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a server's metric by their labels."""
    (family,) = (family for family in server_metrics(server) if family.name == name)
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}
