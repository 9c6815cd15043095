"""The bytes of the log: what goes in comes out, and nothing else is ever taken for a record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.log.record import HEADER_BYTES, MAGIC, Record, RecordKind, Scan, encode_header, read_header
from hullcast.broker.log.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from hullcast.broker.log.segment import SegmentHeader, decode_header

SEED = 77
payloads = st.binary(max_size=40) | st.just(MAGIC * 5)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Record, int]]:
    """Records as a log has them, each with what was synced when it was written."""
    records, number, seq, synced = [], 0, 0, 0
    for _ in range(draw(st.integers(0, 6))):
        if number and draw(st.booleans()):
            synced = number
            records.append((Record(RecordKind.MARK, number, seq + 1, 0), synced))
            continue
        kind = draw(st.sampled_from([RecordKind.BATCH, RecordKind.STATEMENT]))
        number += 1
        count = draw(st.integers(0, 3)) if kind is RecordKind.BATCH else 0
        publisher = draw(st.binary(min_size=16, max_size=16))
        record = Record(kind, number, seq + 1, count, publisher, draw(st.integers(0, 2**64 - 1)), draw(payloads))
        seq = record.last
        records.append((record, synced))
    return records


def written(history: list[tuple[Record, int]], seed: int = SEED) -> bytes:
    return b"".join(encode_header(record, synced, seed) + record.payload for record, synced in history)


def scanned(content: bytes, seed: int = SEED) -> tuple[list[Record], Scan]:
    scan = Scan(content, 0, seed=seed, number=0, seq=0)
    return [placed.record for placed in scan], scan


@given(histories())
def test_what_is_written_is_read(history: list[tuple[Record, int]]) -> None:
    records, scan = scanned(written(history))
    assert records == [record for record, _ in history]
    assert scan.flaw is None


@given(histories(), st.data())
def test_a_cut_anywhere_leaves_the_records_before_it(history: list[tuple[Record, int]], data: st.DataObject) -> None:
    content = written(history)
    at = data.draw(st.integers(0, len(content)))
    records, scan = scanned(content[:at])
    assert records == [record for record, _ in history][: len(records)]
    assert (scan.flaw is None) == (scan.end == at)
    assert scan.flaw is None or scan.flaw.proof is None


@given(histories(), st.data())
def test_a_wrong_byte_is_noticed_and_what_was_synced_is_proven(
    history: list[tuple[Record, int]], data: st.DataObject
) -> None:
    content = bytearray(written(history))
    if not content:
        return
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    records, scan = scanned(bytes(content))
    assert records == [record for record, _ in history][: len(records)]
    assert scan.flaw is not None
    assert scan.flaw.offset <= at
    proven = any(synced > scan.number for _, synced in history[len(records) + 1 :])
    assert (scan.flaw.proof is not None) == proven


@given(st.binary(max_size=300))
def test_no_bytes_are_taken_for_a_record(content: bytes) -> None:
    records, _ = scanned(content)
    assert records == []
    assert read_header(MAGIC + content, 0, SEED) is None


def test_a_record_of_another_segment_is_none_of_ours() -> None:
    content = written([(Record(RecordKind.BATCH, 1, 1, 2, payload=b"rows"), 0)], seed=78)
    records, scan = scanned(content)
    assert records == []
    assert scan.flaw is not None


def test_a_copy_of_the_log_inside_a_payload_proves_nothing() -> None:
    first = Record(RecordKind.BATCH, 1, 1, 1, payload=b"a")
    old = written([(first, 0), (Record(RecordKind.MARK, 1, 2, 0), 1)])
    second = Record(RecordKind.BATCH, 2, 2, 1, payload=old * 3)
    content = bytearray(written([(first, 0), (second, 1)]))
    content[-1] ^= 1
    records, scan = scanned(bytes(content))
    assert records == [first]
    assert scan.flaw is not None
    assert scan.flaw.proof is None


def test_a_lost_record_is_noticed() -> None:
    records = [Record(RecordKind.BATCH, number, number, 1) for number in (1, 2, 3)]
    content = written([(record, record.number - 1) for record in records])
    found, scan = scanned(content[:HEADER_BYTES] + content[2 * HEADER_BYTES :])
    assert found == records[:1]
    assert scan.flaw is not None
    assert scan.flaw.proof is not None
    assert "stands where 2 belongs" in scan.flaw.reason


def test_a_segment_header_with_any_wrong_bit_is_none() -> None:
    header = SegmentHeader(bytes(range(16)), 5, 17, b"salt-123")
    content = header.encode()
    assert len(content) == SEGMENT_HEADER_BYTES
    assert decode_header(content + b"records") == header
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_header(bytes(flipped)) is None
    assert decode_header(content[:-1]) is None
