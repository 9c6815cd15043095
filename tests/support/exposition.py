"""A strict reader of Prometheus's text format 0.0.4: anything a scraper may stumble over is an error here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|Inf)|NaN")
_ENDINGS = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """One metric: its help text (escapes resolved), its kind, and its samples by full name and labels."""

    about: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def read_exposition(text: str) -> dict[str, Family]:
    """The families by name; ValueError where the text is not exactly as the format wants it."""
    families: dict[str, Family] = {}
    if text and not text.endswith("\n"):
        raise ValueError("the last line has no end")
    current = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            current, _, about = line[7:].partition(" ")
            if current in families:
                raise ValueError(f"{current} is there twice")
            if not re.fullmatch(_NAME, current) or re.sub(r"\\\\|\\n", "", about).count("\\"):
                raise ValueError(f"bad help: {line}")
            families[current] = Family(_unescaped(about))
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if name != current or families[name].kind or families[name].samples or kind not in _ENDINGS:
                raise ValueError(f"bad type: {line}")
            families[name].kind = kind
        else:
            _take_sample(line, current, families[current])
    for name, family in families.items():
        if family.kind == "histogram":
            _check_histogram(name, family)
    return families


def _take_sample(line: str, current: str, family: Family) -> None:
    found = _SAMPLE.fullmatch(line)
    if found is None or not family.kind or not _NUMBER.fullmatch(found[3]):
        raise ValueError(f"bad sample: {line}")
    if found[1] not in [current + ending for ending in _ENDINGS[family.kind]]:
        raise ValueError(f"{found[1]} does not belong to {current}")
    labels = _labels(found[2]) if found[2] is not None else ()
    key = (found[1], tuple(sorted(labels)))
    if key in family.samples or len(dict(labels)) < len(labels):
        raise ValueError(f"there twice: {line}")
    family.samples[key] = float(found[3])


def _labels(text: str) -> Labels:
    pairs, at = [], 0
    while True:
        found = _PAIR.match(text, at)
        if found is None:
            raise ValueError(f"bad labels: {text}")
        pairs.append((found[1], _unescaped(found[2])))
        at = found.end()
        if at == len(text):
            return tuple(pairs)
        if text[at] != ",":
            raise ValueError(f"bad labels: {text}")
        at += 1


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _check_histogram(name: str, family: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (full, labels), value in family.samples.items():
        if full == f"{name}_bucket":
            others = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(others, []).append((float(dict(labels)["le"]), value))
    for others, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        if list(bounds) != sorted(set(bounds)) or list(counts) != sorted(counts) or bounds[-1] != float("inf"):
            raise ValueError(f"buckets of {name}{others} do not rise to +Inf")
        if family.samples[f"{name}_count", others] != counts[-1] or (f"{name}_sum", others) not in family.samples:
            raise ValueError(f"count and sum of {name}{others} do not fit")
