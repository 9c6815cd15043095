"""`hullcast log`: what is in a data directory, and whether it is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hullcast.clients.cli import main as cli
from tests.support.durable import CREATE, captured, execute, opened, publish, rows


def filled(path: Path) -> None:
    data = opened(path, segment_bytes=400)
    execute(data, CREATE)
    for number in range(6):
        publish(data, {"K": [number, 100 + number], "V": [1, 2]}, publisher=b"anna".ljust(16), number=number + 1)
        data.log.write_and_sync()
        if number == 2:
            data.write_checkpoint(captured(data))
    data.close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(["log", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_whole_directory_is_called_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 0
    assert "the last good record is 7 (update 12)" in out
    assert "everything" not in out
    judged = [line for line in out.splitlines() if line.endswith("whole  ")]
    assert len(judged) == 1 + len(list((tmp_path / "log").iterdir()))


def test_a_log_that_lost_its_end_is_not_called_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut between two records, marks and all: nothing that is left tells of it, so nothing may be said about it."""
    filled(tmp_path)
    max((tmp_path / "log").iterdir()).unlink()
    code, out, _ = said(capsys, "verify", str(tmp_path))
    last = max((tmp_path / "log").iterdir())
    assert code == 0
    assert f"the last good record is 5 (update 8), in {last.name} to byte {last.stat().st_size}" in out
    assert "The log alone cannot show whether there was anything after that" in out
    code, out, _ = said(capsys, "verify", str(tmp_path), "--json")
    assert json.loads(out)["last"] == {"record": 5, "seq": 8, "file": last.name, "end": last.stat().st_size}


def test_a_log_that_ends_before_a_checkpoint_has_lost_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path)
    for path in sorted((tmp_path / "log").iterdir())[1:]:
        path.unlink()
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 1
    assert "the newest checkpoint with" in out
    assert "not whole; the last good record is" in out


def test_a_log_without_records_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened(tmp_path).close()
    assert said(capsys, "show", str(tmp_path))[:2] == (0, "no records\n")
    assert said(capsys, "show", str(tmp_path), "--json")[:2] == (0, "")


def test_a_copy_made_beside_a_writing_server_is_whole_and_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = opened(tmp_path / "data", segment_bytes=400)
    execute(data, CREATE)
    publish(data, {"K": [1], "V": [1]})
    data.log.write_and_sync()
    code, out, _ = said(capsys, "copy", str(tmp_path / "data"), str(tmp_path / "young"))
    assert code == 0, "without a checkpoint"
    data.write_checkpoint(captured(data))
    publish(data, {"K": [2], "V": [2]})
    data.log.write_and_sync()
    code, out, _ = said(capsys, "copy", str(tmp_path / "data"), str(tmp_path / "copy"))
    assert (code, "the last good record is 3 (update 2)" in out) == (0, True)
    data.close()
    for name, found in (("young", {1: (1.0,)}), ("copy", {1: (1.0,), 2: (2.0,)})):
        copied = opened(tmp_path / name)
        assert rows(copied) == found
        assert copied.identity == data.identity
        copied.close()
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / name).rglob("*") if path.is_file()}
        assert modes == {0o600}
    code, _, err = said(capsys, "copy", str(tmp_path / "data"), str(tmp_path / "copy"))
    assert (code, "not empty" in err) == (2, True)
    code, _, err = said(capsys, "copy", str(tmp_path / "data"), str(tmp_path / "data" / "copy"))
    assert (code, "inside the data directory" in err) == (2, True)
    assert not (tmp_path / "data" / "copy").exists()


def test_an_unfinished_write_is_told_and_is_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    last = max((tmp_path / "log").iterdir())
    last.write_bytes(last.read_bytes() + b"half a rec")
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 0
    assert "10 bytes of an unfinished write" in out


def test_every_damage_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    first, _, third, *_ = sorted((tmp_path / "log").iterdir())
    for path in (first, third, next(tmp_path.glob("*.sqlite"))):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 1
    assert out.count("problem: ") == out.count("damaged:") == 3
    assert str(first) in out
    assert str(third) in out
    code, out, _ = said(capsys, "verify", str(tmp_path), "--json")
    assert code == 1
    assert len(json.loads(out)["problems"]) == 3


def test_missing_segments_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    first, second, *_ = sorted((tmp_path / "log").iterdir())
    second.unlink()
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 1
    assert "but the segment before it ends with" in out
    first.unlink()
    for path in tmp_path.glob("*.sqlite"):
        path.unlink()
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 1
    assert "are in no checkpoint that is whole, nor in the log" in out


def test_records_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    code, out, _ = said(capsys, "show", str(tmp_path))
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 7
    assert CREATE in lines[0]
    assert "1 to 2" in lines[1]
    assert "#1" in lines[1]


def test_records_are_shown_from_an_update_on_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    code, out, _ = said(capsys, "show", str(tmp_path), "--from", "8", "--json")
    assert code == 0
    shown = [json.loads(line) for line in out.splitlines()]
    assert [(each["first_seq"], each["last_seq"]) for each in shown] == [(7, 8), (9, 10), (11, 12)]
    assert shown[0]["publisher"] == b"anna".ljust(16).hex()
    assert {"record", "kind", "number", "bytes", "file", "offset"} <= shown[0].keys()


def test_what_cannot_be_shown_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    first = min((tmp_path / "log").iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    code, out, err = said(capsys, "show", str(tmp_path))
    assert code == 2
    assert out.count("\n") >= 1
    assert f"{first} at byte" in err


@pytest.mark.parametrize("which", ["verify", "show"])
def test_what_is_no_data_directory_is_refused(tmp_path: Path, which: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, which, str(tmp_path / "nowhere"))
    assert code == 2
    assert "no such directory" in err
    code, _, err = said(capsys, which, str(tmp_path))
    assert code == 2
    assert "not a data directory" in err


def test_a_lost_identity_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path)
    identity = (tmp_path / "identity").read_text().split()[-1]
    (tmp_path / "identity").unlink()
    code, out, _ = said(capsys, "verify", str(tmp_path))
    assert code == 1, "damage, like any other"
    assert "it is missing" in out
    assert identity in out
