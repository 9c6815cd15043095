"""Key files: only their owner reads them, nothing is overwritten, and what is wrong is said."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
import zmq

from hullcast.network.security.keys import load_pair, load_public, make_pair, write_pair
from hullcast.network.wire.errors import BadSetting


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_pair_survives_its_files(tmp_path: Path) -> None:
    pair = make_pair("ticker")
    secret_path, public_path = write_pair(pair, tmp_path / "new" / "folder")
    assert (secret_path.name, public_path.name) == ("ticker.key", "ticker.pub")
    assert load_pair(secret_path) == pair
    assert load_public(public_path) == load_public(secret_path) == load_public(pair.public) == pair.public
    assert zmq.curve_public(pair.secret.encode()) == pair.public.encode()
    assert pair.secret not in public_path.read_text("utf-8")


def test_only_the_owner_reads_the_secret_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        secret_path, public_path = write_pair(make_pair("a"), tmp_path)
    finally:
        os.umask(before)
    assert (mode(secret_path), mode(public_path)) == (0o600, 0o644)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o610, 0o666])
def test_a_secret_that_others_may_read_is_refused(bits: int, tmp_path: Path) -> None:
    secret_path, _ = write_pair(make_pair("a"), tmp_path)
    secret_path.chmod(bits)
    with pytest.raises(BadSetting, match=r"others may read this secret; run `chmod 600 .*a\.key`"):
        load_pair(secret_path)
    secret_path.chmod(0o400)
    load_pair(secret_path)


def test_the_public_file_in_place_of_the_pair_is_no_secret_to_hide(tmp_path: Path) -> None:
    _, public_path = write_pair(make_pair("a"), tmp_path)
    with pytest.raises(BadSetting, match=r"looks like the public file, the pair is in the \.key file"):
        load_pair(public_path)


def test_a_pair_is_never_overwritten_unless_forced(tmp_path: Path) -> None:
    pair = make_pair("a")
    secret_path, public_path = write_pair(pair, tmp_path)
    with pytest.raises(BadSetting, match="exists already"):
        write_pair(make_pair("a"), tmp_path)
    secret_path.unlink()
    with pytest.raises(BadSetting, match=r"a\.pub.*exists already"):
        write_pair(make_pair("a"), tmp_path)
    assert not secret_path.exists()
    assert load_public(public_path) == pair.public
    other = make_pair("a")
    write_pair(other, tmp_path, force=True)
    assert load_pair(secret_path) == other
    assert mode(secret_path) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.key", "a.pub"]


def test_a_secret_does_not_show_in_texts() -> None:
    pair = make_pair("a")
    assert pair.secret not in repr(pair)
    assert pair.secret not in str(pair)


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".a", "-a", "a b", 'a"', "ä", "a" * 65, "a\n"])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(BadSetting, match="name"):
        make_pair(name)


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match=r"out = '.*file'"):
        write_pair(make_pair("a"), tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no secret key"),
        ("secret = 3", "no secret key"),
        ("secret = 'short'", "no secret key"),
        ("public = 'x'", "the pair is in the .key file"),
        ("{", "this is not a key file"),
        ("x = '" + "x" * 20_000 + "'", "far too long"),
    ],
)
def test_what_is_no_pair_is_refused(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.write_text(text, "utf-8")
    path.chmod(0o600)
    with pytest.raises(BadSetting) as refused:
        load_pair(path)
    assert what in str(refused.value)
    assert str(path) in str(refused.value)


def test_halves_of_two_pairs_are_refused_without_showing_them(tmp_path: Path) -> None:
    pair, other = make_pair("a"), make_pair("a")
    path, _ = write_pair(pair, tmp_path)
    path.write_text(path.read_text("utf-8").replace(pair.public, other.public), "utf-8")
    with pytest.raises(BadSetting, match="do not belong together") as refused:
        load_pair(path)
    assert pair.secret not in str(refused.value)


def test_a_file_that_is_not_there_leads_to_keygen(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="`hullcast keygen` makes one"):
        load_pair(tmp_path / "none.key")
    with pytest.raises(BadSetting, match=r"parent_key = .*none\.pub"):
        load_public(tmp_path / "none.pub", setting="parent_key")
    (tmp_path / "bad.pub").write_text("name = 'x'", "utf-8")
    with pytest.raises(BadSetting, match="no public key"):
        load_public(tmp_path / "bad.pub")


def test_key_files_are_toml(tmp_path: Path) -> None:
    pair = make_pair("a")
    secret_path, public_path = write_pair(pair, tmp_path)
    public = {"name": "a", "public": pair.public}
    assert tomllib.loads(public_path.read_text("utf-8")) == public
    assert tomllib.loads(secret_path.read_text("utf-8")) == public | {"secret": pair.secret}
