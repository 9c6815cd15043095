"""Durations: what people write becomes seconds, and what is written from seconds is read as the same number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire.durations import duration_text, seconds_of, time_shown


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0.25, 0.25),
        (3, 3.0),
        ("3", 3.0),
        ("1e-3", 0.001),
        ("200ms", 0.2),
        ("1.5 s", 1.5),
        ("1m", 60.0),
        ("15min", 900.0),
        ("1h 30m", 5400.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("-5", -5.0),
        ("-5s", -5.0),
        (" 1_000 ms ", 1.0),
    ],
)
def test_a_duration_is_read(given: object, seconds: float) -> None:
    assert seconds_of(given) == seconds


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "-",
        "ms",
        "1 week",
        "1M",
        "1h 30",
        "30 1h",
        "1h-30m",
        "nan",
        "inf",
        "1e999s",
        "1e99999999s",
        "1" * 65,
        float("nan"),
        float("inf"),
        10**400,
        True,
        None,
        b"1s",
        [1],
    ],
)
def test_what_is_no_duration_is_refused_with_what_would_be(given: object) -> None:
    with pytest.raises(ValueError, match="number of seconds, or a text such as '200ms', '1m' or '1h 30m'"):
        seconds_of(given)


@given(st.floats(1e-12, 1e12) | st.integers(0, 10**12).map(lambda count: count / 1000))
def test_a_duration_that_is_written_is_read_as_the_same_number(seconds: float) -> None:
    assert seconds_of(duration_text(seconds)) == seconds


@given(st.text(max_size=9) | st.text("0123456789.eE+-_ mshd", max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert isinstance(seconds_of(text), float)
    except ValueError as error:
        assert "such as" in str(error)  # noqa: PT017


def test_durations_are_written_in_the_largest_whole_unit() -> None:
    assert [duration_text(seconds) for seconds in (86400.0, 5400.0, 60.0, 90.0, 0.2, 0.0005)] == [
        "1d", "90m", "1m", "90s", "200ms", "0.0005s",
    ]  # fmt: skip


def test_times_are_shown_rounded_in_the_unit_that_reads_best() -> None:
    times = (0.0, 0.00123, 0.2, 1.5, 59.0, 61.2, 5400.0, 90_000.0)
    assert [time_shown(seconds) for seconds in times] == [
        "0 s", "1.23 ms", "200 ms", "1.5 s", "59 s", "1 min 1 s", "1 h 30 min", "1 d 1 h",
    ]  # fmt: skip
