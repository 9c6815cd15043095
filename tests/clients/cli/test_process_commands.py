"""`hullcast server`, `node` and `up` before they serve: settings, and one clear line for what is wrong."""

from __future__ import annotations

import socket
import tomllib
from typing import TYPE_CHECKING

import pytest

from hullcast.clients.cli import main as cli
from hullcast.network.security.keys import make_pair, write_pair
from tests.support.durable import CREATE, execute, only_segment, opened, publish
from tests.support.processes import ANYWHERE, hull, started

if TYPE_CHECKING:
    from pathlib import Path


def failed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that a command says when it cannot run."""
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hullcast: ")
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize("command", ["server", "node"])
def test_check_config_shows_each_setting_and_where_it_comes_from(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hullcast.toml"
    file.write_text(f'[{command}]\nname = "from-file"\n[link]\nheartbeat_s = 0.25\n')
    monkeypatch.setenv("HULLCAST_SILENCE_S", "2")
    monkeypatch.setenv("HULLCAST_URL", "tcp://127.0.0.1:7600")  # of clients; none of its business
    words = (command, "--config", str(file), "--listen", "tcp://127.0.0.1:0", "--check-config")
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    read = tomllib.loads(text)
    assert read[command]["name"] == "from-file"
    assert read[command]["listen"] == "tcp://127.0.0.1:0"
    assert (read["link"]["heartbeat_s"], read["link"]["silence_s"]) == (0.25, 2.0)
    sources = {line.partition(" = ")[0]: line.partition("  # ")[2].strip() for line in text.splitlines()}
    assert sources["listen"] == "--listen"
    assert sources["silence_s"] == "HULLCAST_SILENCE_S"
    assert sources["heartbeat_s"] == f"{file} [link]"
    assert sources["window_bytes"] == "default"


@pytest.mark.parametrize("command", ["server", "node"])
def test_print_config_is_a_file_that_changes_nothing(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wrong:
        wrong.setenv("HULLCAST_MAX_CHILDREN", "none")  # not looked at: the defaults are asked for
        assert cli.main((command, "--print-config")) == 0
    file = tmp_path / "example.toml"
    file.write_text(capsys.readouterr().out)
    assert cli.main((command, "--config", str(file), "--check-config")) == 0
    assert f"{file}" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["server", "node"])
def test_what_is_wrong_with_the_settings_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--listen" in failed(capsys, command, "--listen", "nowhere")
    assert "--heartbeat-s" in failed(capsys, command, "--heartbeat-s", "-1", "--check-config")
    assert "--insecure" in failed(capsys, command, "--listen", "tcp://192.0.2.1:7600")
    assert "nothing.toml" in failed(capsys, command, "--config", str(tmp_path / "nothing.toml"))
    file = tmp_path / "hullcast.toml"
    file.write_text("[link]\nheartbeat = 1\n")
    assert "heartbeat_s" in failed(capsys, command, "--config", str(file))


@pytest.mark.parametrize("command", ["server", "node"])
@pytest.mark.parametrize("check", [(), ("--check-config",)])
def test_keys_and_allow_lists_are_read_before_anything_starts(
    command: str, check: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, _ = write_pair(make_pair("hub"), tmp_path)
    missing = failed(capsys, command, "--key", str(tmp_path / "no.key"), "--open", *check)
    assert "hullcast keygen" in missing
    key.chmod(0o644)
    assert "chmod 600" in failed(capsys, command, "--key", str(key), "--open", *check)
    key.chmod(0o600)
    absent = failed(capsys, command, "--key", str(key), "--allow", str(tmp_path / "no.toml"), *check)
    assert "no.toml" in absent
    bad = tmp_path / "allow.toml"
    bad.write_text("[[key]]\npublik = 1\n")
    assert "public" in failed(capsys, command, "--key", str(key), "--allow", str(bad), *check)
    if command == "node":
        words = ("--key", str(key), "--open", "--parent-key", str(tmp_path / "no.pub"), *check)
        assert "no.pub" in failed(capsys, command, *words)


@pytest.mark.parametrize("command", ["server", "node"])
def test_a_key_without_an_allow_list_is_refused_unless_everybody_shall_come_in(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = write_pair(make_pair("hub"), tmp_path)
    file = tmp_path / "hullcast.toml"
    for ways in ("flag", "variable", "file"):
        words: tuple[str, ...] = (command, "--key", str(key))
        if ways == "variable":
            monkeypatch.setenv("HULLCAST_KEY", str(key))
            words = (command,)
        elif ways == "file":
            monkeypatch.delenv("HULLCAST_KEY")
            file.write_text(f"[security]\nkey = '{key}'\n")
            words = (command, "--config", str(file))
        line = failed(capsys, *words)
        assert "--allow FILE" in line
        assert "--open" in line
        assert cli.main((*words, "--open", "--check-config")) == 0
        capsys.readouterr()
    monkeypatch.setenv("HULLCAST_OPEN", "yes")
    assert cli.main((command, "--key", str(key), "--check-config")) == 0
    capsys.readouterr()
    monkeypatch.delenv("HULLCAST_OPEN")
    allow = tmp_path / "allow.toml"
    allow.write_text("")
    assert "one of the two" in failed(capsys, command, "--key", str(key), "--allow", str(allow), "--open")


async def test_an_open_server_says_so_in_its_log(tmp_path: Path) -> None:
    key, _ = write_pair(make_pair("hub"), tmp_path)
    said: list[str] = []
    async with started("server", "--listen", ANYWHERE, "--key", str(key), "--open", hear=said.append):
        assert [line for line in said if "WARNING" in line.upper() and "may do everything" in line]


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        here, elsewhere = f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:0"
        for words in (
            ("server", "--listen", here),
            ("node", "--listen", elsewhere, "--monitor", f"127.0.0.1:{port}"),
            ("up", "--nodes", "0", "--listen", here),
        ):
            ended = hull(*words, HULLCAST_LOG_LEVEL="error")
            assert ended.returncode == 2
            last = ended.stderr.splitlines()[-1]
            assert last.startswith("hullcast: ")
            assert str(port) in last
            assert "in use; stop the process that listens there, or choose another port" in last
            assert "Traceback" not in ended.stderr


def test_a_damaged_log_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with_log = ("server", "--data", str(folder), "--listen", "tcp://127.0.0.1:0", "--log-level", "error")
    data = opened(folder)
    execute(data, CREATE)
    for key in range(3):
        publish(data, {"K": [key], "V": [1.0]})
    data.log.write_and_sync()
    data.close()
    segment = only_segment(folder)
    content = bytearray(segment.read_bytes())
    content[content.index(b"CREATE")] ^= 1  # of the first record: no torn end, but damage
    segment.write_bytes(content)
    ended = hull(*with_log)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert segment.name in line


def test_help_tells_what_signals_do(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("server", "node"):
        with pytest.raises(SystemExit):
            cli.main((command, "--help"))
        text = " ".join(capsys.readouterr().out.split())
        assert "SIGTERM" in text
        assert "--check-config" in text
