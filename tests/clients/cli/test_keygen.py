"""`hullcast keygen`, as a user meets it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from hullcast.clients.cli import main as cli
from hullcast.network.security.keys import load_pair
from hullcast.network.security.rights import Rights


def test_keygen_makes_a_pair_and_prints_lines_for_the_allow_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["keygen", "--out", str(tmp_path), "--name", "ticker"]) == 0
    text = capsys.readouterr().out
    pair = load_pair(tmp_path / "ticker.key")
    assert str(tmp_path / "ticker.pub") in text
    assert pair.secret not in text
    rights = Rights.parse(tomllib.loads(text[text.index("[[key]]") :]))
    assert rights.who(pair.public).name == "ticker"
    rights.check(rights.who(pair.public), "subscribe", ["STOCK"])


def test_keygen_tells_programs_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keygen", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pair = load_pair(found["key_file"])
    assert found == {
        "name": "hullcast",
        "public": pair.public,
        "key_file": str(tmp_path / "hullcast.key"),
        "public_file": str(tmp_path / "hullcast.pub"),
    }


def test_keygen_leaves_a_pair_alone_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["keygen", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    pair = load_pair(tmp_path / "hullcast.key")
    capsys.readouterr()
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("hullcast: ")
    assert "exists already" in said.err
    assert len(said.err.splitlines()) == 1
    assert load_pair(tmp_path / "hullcast.key") == pair
    assert cli.main([*words, "--force"]) == 0
    assert load_pair(tmp_path / "hullcast.key") != pair


def test_keygen_adds_keys_and_their_rights_to_an_allow_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allow = tmp_path / "allow.toml"
    common = ["--out", str(tmp_path), "--allow", str(allow)]
    assert cli.main(["keygen", "--name", "cluster", "--node", *common]) == 0
    assert cli.main(["keygen", "--name", "desk", "--subscribe", "STOCK", "NEWS", "--query", "*", *common]) == 0
    assert "desk may: subscribe STOCK NEWS, query *" in capsys.readouterr().out
    rights = Rights.load(allow)
    cluster, desk = (rights.who(load_pair(tmp_path / f"{name}.key").public) for name in ("cluster", "desk"))
    assert (cluster.name, cluster.node, cluster.admin) == ("cluster", True, False)
    assert not cluster.may("query", "STOCK")
    assert desk.may("subscribe", "news")
    assert desk.may("query", "anything")
    assert not desk.may("publish", "STOCK")
    before = allow.read_text()
    for words in (["--name", "desk", "--node", "--force"], ["--name", "nobody"]):
        assert cli.main(["keygen", *words, *common]) == 2
        assert allow.read_text() == before
    assert "desk already" in (said := capsys.readouterr().err)
    assert "--publish" in said
    assert not (tmp_path / "nobody.key").exists()
    allow.write_text(before + "[[key]")
    assert cli.main(["keygen", "--name", "third", "--node", *common]) == 2
    assert not (tmp_path / "third.key").exists()


def test_keygen_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["keygen", "--help"])
    assert stop.value.code == 0
    assert "--force" in capsys.readouterr().out
