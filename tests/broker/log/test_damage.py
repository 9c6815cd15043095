"""Torn or damaged: an unfinished write is cut off, and what was acknowledged is never lost without a word."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.record import HEADER_BYTES, Record, RecordKind, Scan
from hullcast.broker.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from hullcast.broker.log.segment import decode_header, segments
from hullcast.broker.log.tail import Tail
from hullcast.network.wire.errors import LogDamaged
from tests.support.durable import CREATE, crash, execute, only_segment, opened, publish, rows

GROUPS = ((1, 2), (3,), (4, 5, 6))  # record numbers, as they are synced together


def small_log(path: Path) -> list[Record]:
    """A statement and five batches in three groups; the process is killed right after the last sync."""
    data = opened(path)
    execute(data, CREATE)
    for group in GROUPS:
        for number in group:
            if number > 1:
                publish(data, {"K": [number, -number], "V": [number / 2, None]})
        data.log.write_and_sync()
    crash(data)
    return list(tail_of(path).records())


def tail_of(path: Path) -> Tail:
    identity = read_identity(path)
    assert identity is not None
    return Tail(path / "log", identity)


def without_last_mark(path: Path) -> None:
    """As after a power cut: the last group is on disk, the mark behind it is not."""
    segment = only_segment(path)
    segment.write_bytes(segment.read_bytes()[:-HEADER_BYTES])


def end_of_record(path: Path, number: int) -> int:
    """Where the record of that number ends."""
    content = only_segment(path).read_bytes()
    header = decode_header(content)
    assert header is not None
    scan = Scan(content, SEGMENT_HEADER_BYTES, seed=header.seed, number=0, seq=0)
    for placed in scan:
        if placed.record.number == number and placed.record.kind is not RecordKind.MARK:
            return placed.offset + placed.size_bytes
    raise AssertionError(f"no record {number}")


def test_every_cut_of_the_last_group_keeps_all_before_it(tmp_path: Path) -> None:
    records = small_log(tmp_path)
    segment = only_segment(tmp_path)
    content = segment.read_bytes()
    begin = end_of_record(tmp_path, 3) + HEADER_BYTES  # behind the mark of the second group
    ends = {end_of_record(tmp_path, number): number for number in (4, 5, 6)}
    for size in range(begin, len(content)):
        segment.write_bytes(content[:size])
        tail = tail_of(tmp_path)
        whole = 3 + sum(end <= size for end in ends)
        assert list(tail.records()) == records[:whole]
        assert tail.end.number == whole
        clean = size in {begin, *ends}
        assert (tail.cut is None) == clean


@pytest.mark.parametrize("back", [1, HEADER_BYTES, HEADER_BYTES + 1, 150, 300])
def test_a_server_goes_on_behind_a_cut(tmp_path: Path, back: int) -> None:
    small_log(tmp_path)
    segment = only_segment(tmp_path)
    segment.write_bytes(segment.read_bytes()[:-back])
    with_cut = opened(tmp_path)
    assert back == HEADER_BYTES or with_cut.recovered.cut is not None
    before = rows(with_cut)
    publish(with_cut, {"K": [100], "V": [1.0]})
    with_cut.close()
    again = opened(tmp_path)
    assert again.recovered.cut is None
    assert rows(again) == before | {100: (1.0,)}
    again.close()


def test_every_flipped_bit_is_damage_or_costs_nothing(tmp_path: Path) -> None:
    """The marks stand behind their groups: whatever is wrong before the last mark was on disk once."""
    records = small_log(tmp_path)
    segment = only_segment(tmp_path)
    content = segment.read_bytes()
    chance = random.Random(1)
    for at in range(len(content)):
        segment.write_bytes(_flipped(content, at, chance))
        tail = tail_of(tmp_path)
        if at < len(content) - HEADER_BYTES:
            with pytest.raises(LogDamaged) as damaged:
                list(tail.records())
            assert damaged.value.file == str(segment)
            assert 0 <= damaged.value.offset <= at
            assert "hullcast log verify" in str(damaged.value)
        else:  # the last mark itself
            assert list(tail.records()) == records
            assert tail.cut is not None
            assert tail.cut.size_bytes == HEADER_BYTES


def test_without_the_last_mark_only_the_last_group_can_be_cut(tmp_path: Path) -> None:
    records = small_log(tmp_path)
    without_last_mark(tmp_path)
    segment = only_segment(tmp_path)
    content = segment.read_bytes()
    third = end_of_record(tmp_path, 3)
    chance = random.Random(2)
    for at in range(len(content)):
        segment.write_bytes(_flipped(content, at, chance))
        tail = tail_of(tmp_path)
        try:
            found = list(tail.records())
        except LogDamaged:
            assert at < third
        else:
            assert at >= third
            assert found == records[: len(found)]
            assert len(found) >= 3
            assert tail.cut is not None


def test_after_a_clean_stop_the_server_refuses_damage_and_leaves_it_alone(tmp_path: Path) -> None:
    small_log(tmp_path)
    segment = only_segment(tmp_path)
    content = segment.read_bytes()
    segment.write_bytes(_flipped(content, len(content) - HEADER_BYTES - 5, random.Random(3)))
    damaged = segment.read_bytes()
    for _ in range(2):
        with pytest.raises(LogDamaged):
            opened(tmp_path)
    assert segment.read_bytes() == damaged
    segment.write_bytes(content)  # restored from a copy
    data = opened(tmp_path)
    assert data.log.number == 6
    data.close()


def test_pages_that_reached_the_disk_out_of_order_are_a_torn_end(tmp_path: Path) -> None:
    """A group larger than a page: after a power cut its later pages may be there without the first ones."""
    data = opened(tmp_path)
    execute(data, CREATE)
    data.log.write_and_sync()
    for number in range(200):
        publish(data, {"K": [number], "V": [number]})
    data.log.write_and_sync()
    crash(data)
    without_last_mark(tmp_path)
    segment = only_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    content[4096:8192] = bytes(4096)
    segment.write_bytes(content)
    data = opened(tmp_path)
    assert data.recovered.cut is not None
    assert 1 < data.log.number < 60
    assert rows(data) == {number: (float(number),) for number in range(data.log.number - 1)}
    data.close()


@settings(max_examples=200)
@given(st.data())
def test_no_power_cut_is_taken_for_damage_nor_costs_what_was_synced(data: st.DataObject) -> None:
    """Of what was written after the last sync (a mark and a group), any blocks may be on disk and any not."""
    with TemporaryDirectory() as name:
        path = Path(name)
        records = small_log(path)
        segment = only_segment(path)
        content = segment.read_bytes()
        synced = end_of_record(path, 3)
        block = data.draw(st.sampled_from([8, 64, 100]))
        size = data.draw(st.integers(synced, len(content) - HEADER_BYTES))
        left = bytearray(content[:size])
        for at in range(synced, size, block):
            if data.draw(st.booleans()):
                left[at : min(at + block, size)] = bytes(min(block, size - at))
        segment.write_bytes(left)
        found = list(tail_of(path).records())
    assert found == records[: len(found)]
    assert len(found) >= 3


def test_zeros_behind_the_end_are_cut(tmp_path: Path) -> None:
    records = small_log(tmp_path)
    segment = only_segment(tmp_path)
    segment.write_bytes(segment.read_bytes() + bytes(5000))
    tail = tail_of(tmp_path)
    assert list(tail.records()) == records
    assert tail.cut is not None
    assert tail.cut.size_bytes == 5000


def many_segments(path: Path) -> list[Path]:
    data = opened(path, segment_bytes=200)
    execute(data, CREATE)
    for number in range(8):
        publish(data, {"K": [number], "V": [number]})
        data.log.write_and_sync()
    data.close()
    return [found for _, found in segments(path / "log")]


def _remove(path: Path) -> None:
    path.unlink()


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _exchange(path: Path) -> None:
    shutil.copy(min(path.parent.iterdir()), path)


@pytest.mark.parametrize("harm", [_remove, _shorten, _empty, _exchange])
@pytest.mark.parametrize("which", [1, 2])
def test_harm_to_an_earlier_segment_is_damage(tmp_path: Path, which: int, harm: Callable[[Path], None]) -> None:
    found = many_segments(tmp_path)
    assert len(found) > 3
    harm(found[which])
    with pytest.raises(LogDamaged):
        opened(tmp_path)


def test_a_missing_first_segment_is_damage(tmp_path: Path) -> None:
    many_segments(tmp_path)[0].unlink()
    with pytest.raises(LogDamaged, match=r"records 1 to \d+ are missing"):
        opened(tmp_path)


@pytest.mark.parametrize("size", [0, 10, SEGMENT_HEADER_BYTES])
def test_a_segment_that_was_only_begun_is_removed(tmp_path: Path, size: int) -> None:
    many_segments(tmp_path)
    begun = tmp_path / "log" / f"{10:020}.log"
    begun.write_bytes(bytes(size))
    data = opened(tmp_path)
    assert data.recovered.cut is not None
    assert not begun.exists()
    assert len(rows(data)) == 8
    publish(data, {"K": [9], "V": [9]})
    data.close()
    data = opened(tmp_path)
    assert len(rows(data)) == 9
    data.close()


def test_a_bad_header_with_records_behind_it_is_damage(tmp_path: Path) -> None:
    found = many_segments(tmp_path)[-1]
    found.write_bytes(b"x" + found.read_bytes()[1:])
    with pytest.raises(LogDamaged, match="header"):
        opened(tmp_path)


def test_segments_of_another_directory_are_refused(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    many_segments(here)
    found = many_segments(there)[2]
    shutil.copy(found, here / "log" / found.name)
    with pytest.raises(LogDamaged, match="belongs to data directory"):
        opened(here)


def test_a_lost_identity_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    small_log(tmp_path)
    identity = tmp_path / "identity"
    content = identity.read_text()
    identity.unlink()
    with pytest.raises(LogDamaged, match="missing although there is data"):
        opened(tmp_path)
    for wrong in (content[:-3], "", content.upper(), content.replace("e", "x", 1)):
        identity.write_text(wrong)
        with pytest.raises(LogDamaged):
            opened(tmp_path)
    identity.write_text(content)
    opened(tmp_path).close()


def _flipped(content: bytes, at: int, chance: random.Random) -> bytes:
    harmed = bytearray(content)
    harmed[at] ^= 1 << chance.randrange(8)
    return bytes(harmed)
